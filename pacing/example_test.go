package pacing_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"crawlgate/pacing"
)

func Example() {
	p, err := pacing.New(pacing.Defaults(), nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	r := pacing.Request{Key: "www.example.org", Client: "team-a", URL: "https://www.example.org/", Gap: time.Second, Delay: 90 * time.Second, Wait: time.Minute}
	turn, err := p.Acquire(context.Background(), r)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer turn.Done(pacing.Outcome{Sent: true, Err: errors.New("panic")}) // only the first Done counts
	turn.Done(pacing.Outcome{Sent: true, Status: 200})

	_, err = p.Acquire(context.Background(), r) // the robots delay is longer than the wait
	var busy *pacing.Busy
	if errors.As(err, &busy) {
		fmt.Println(busy.Reason, busy.RetryAfter())
	}
	// Output: turn-too-far 90
}
