package launcher

import (
	"testing"
	"time"

	"github.com/sharness/sharness/manifest"
)

func TestJobLastsWhereItHasMoreTimeThanACommand(t *testing.T) {
	const none = manifest.TimeoutNone
	for _, c := range []struct {
		job, command manifest.Timeout
		want         bool
	}{{none, none, true}, {none, 1, true}, {1, none, false}, {manifest.Timeout(time.Second), manifest.Timeout(time.Minute), false}, {2, 1, true}, {1, 1, false}} {
		m := &manifest.Manifest{}
		m.Sandbox.Background.Timeout, m.Sandbox.Timeout = c.job, c.command
		if got := jobsLast(m); got != c.want {
			t.Errorf("job %v, command %v: got %v", c.job, c.command, got)
		}
	}
}
