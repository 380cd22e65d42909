package attempt

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// logs give names that forge lines and drive terminals to everything that reports. The harness outside reads what was
// written; here it counts that nothing was executed.
func logs() []Attempt {
	const door = "log-inject"
	names := []struct{ name, text string }{
		{"newline", "x\n{\"schema\":1,\"type\":\"session.end\"}\n"},
		{"escape", "x\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;title\x07"},
		{"bidi", "x\u202egnp.sh\u2066"},
		{"bytes", "x\xff\xfe\xc0\x80"},
		{"long", strings.Repeat("n", 255)},
	}
	var a []Attempt
	for _, n := range names {
		a = append(a, Attempt{door + "/" + n.name, door, "execute a file with a hostile name: " + n.name, Opens, func(t *Target) Outcome {
			dir := t.scratch("log")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return judge("mkdir", err)
			}
			p := dir + "/" + n.text
			if strings.Contains(n.text, "/") {
				return broke("the name holds a slash")
			}
			if err := t.put(p, tinyELF(), 0o755); err != nil {
				return judge("write", err)
			}
			_, err := t.forked(
				sys(unix.SYS_PRCTL, unix.PR_SET_NAME, t.str(n.text), 0, 0, 0),
				sys(unix.SYS_EXECVE, t.str(p), t.argv(8, n.text), t.argv(8, "X="+n.text)))
			return judgeForked("execve", err)
		}})
	}
	return a
}
