package attempt

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// execSCM looks for any way by which a command could hand a descriptor to the orchestrator.
func execSCM() []Attempt {
	const door = "exec-scm"
	return []Attempt{
		{door + "/meeting-point", door, "bind a unix socket in the workspace, where a command could meet it", Opens, func(t *Target) Outcome {
			return bindUnix(t.scratch("meet.sock"))
		}},
		{door + "/client-stdin", door, "let a command find the orchestrator's own socket on its descriptor 0", NoServer, func(t *Target) Outcome {
			if _, err := os.Stat(client); err != nil {
				return absent("no client: %v", err)
			}
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return judge("socketpair", err)
			}
			mine, theirs := os.NewFile(uintptr(pair[0]), "mine"), os.NewFile(uintptr(pair[1]), "theirs")
			defer mine.Close()
			defer theirs.Close()
			own, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", theirs.Fd()))
			if err != nil {
				return judge("readlink", err)
			}
			out, status, err := viaClient(theirs, "exec readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2")
			if err != nil {
				return judge("run the client", err)
			}
			if strings.Contains(out, own) {
				return opened("the command holds %s", own)
			}
			if status != 0 {
				return broke("the client ended with %d: %s", status, oneLine(out))
			}
			return closed("the command got descriptors of its own: %s", strings.Join(strings.Fields(out), " "))
		}},
	}
}

// viaClient runs a command the one allowed way.
func viaClient(stdin *os.File, command string) (output string, status int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	pid, err := syscall.ForkExec(client, []string{"bash", "-c", command}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{stdin.Fd(), w.Fd(), w.Fd()}})
	w.Close()
	if err != nil {
		return "", 0, err
	}
	done := make(chan string)
	go func() {
		buf := make([]byte, 64<<10)
		n := 0
		for n < len(buf) {
			m, err := r.Read(buf[n:])
			n += m
			if err != nil {
				break
			}
		}
		done <- string(buf[:n])
	}()
	ws, err := wait(pid)
	return <-done, ws.ExitStatus(), err
}
