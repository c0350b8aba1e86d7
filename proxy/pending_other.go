//go:build !unix

package proxy

// What there is to read on a connection.
const (
	nothingPending = iota
	somethingPending
	endPending
)

// pending cannot look without taking away on this system. A connection that has ended is then found out by using it.
func pending(*originConn) int { return nothingPending }

// readSoon cannot know here whether a read will wait.
type readSoon struct{}

func (readSoon) read(c *originConn, p []byte) (int, error) {
	c.waits()
	return c.Conn.Read(p)
}
