package pacing

const childEnv = "PACING_TEST_CHILD"

func child() int { return 0 }
