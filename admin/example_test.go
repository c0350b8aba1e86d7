package admin_test

import (
	"bytes"
	"fmt"
	"time"

	"crawlgate/admin"
)

// Two fetchers share a host that asked for two seconds between requests.
func ExampleTurnsSVG() {
	t := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	dots := []admin.Dot{
		{Client: "browser", Start: t, End: t.Add(200 * time.Millisecond), Mark: admin.DotSent, Owed: 2 * time.Second},
		{Client: "scraper", Start: t.Add(2200 * time.Millisecond), End: t.Add(2500 * time.Millisecond), Mark: admin.DotSent, Owed: 2 * time.Second},
		{Client: "browser", Start: t.Add(3 * time.Second), Mark: admin.DotRefused, Label: "GET /cart refused: robots-disallow"},
	}
	var file bytes.Buffer
	err := admin.TurnsSVG(&file, dots, admin.TurnsOptions{Title: "shop.test", Relative: true, Standalone: true})
	fmt.Println(err, bytes.Contains(file.Bytes(), []byte("shop.test: 2 sent, 1 refused, smallest gap 2s.")))
	// Output: <nil> true
}
