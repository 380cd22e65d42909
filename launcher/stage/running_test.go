package stage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/internal/kerneltest"
	"golang.org/x/sys/unix"
)

// waiting starts a domain whose target says "here" and then reads its standard input to the end.
func waiting(t *testing.T, edit func(*world)) (d *domain, stdin *os.File, out *bufio.Reader) {
	t.Helper()
	w := mustWorld(t, "/usr/bin/bash", "-c", "echo here; exec cat")
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close() })
	w.plan.Stdio[0] = w.pass(in)
	out = bufio.NewReader(w.output(t))
	if edit != nil {
		edit(w)
	}
	d = launch(t, w)
	d.next(MsgRunning)
	if line, err := out.ReadString('\n'); line != "here\n" {
		t.Fatalf("target said %q, %v", line, err)
	}
	return d, stdin, out
}

func TestBothProcessesOfTheStageHaveGivenUpEverything(t *testing.T) {
	d, _, _ := waiting(t, nil)
	target := children(t, d.pid)
	if len(target) != 1 {
		t.Fatalf("want one child of pid 1, got %v", target)
	}
	const none = "0000000000000000"
	id := strings.TrimSpace(strings.Repeat(fmt.Sprint(domainID)+" ", 4))
	for name, pid := range map[string]int{"pid 1": d.pid, "target": target[0]} {
		statuses, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(statuses) == 0 {
			t.Fatalf("%s: no thread: %v", name, err)
		}
		for _, path := range statuses {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := statusFields(string(data))
			for field, want := range map[string]string{"Uid": id, "Gid": id, "Groups": "", "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1",
				"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "TracerPid": "0"} {
				if field == "CapBnd" && got["Pid"] != got["Tgid"] {
					continue // of a thread that never execs (giveUp)
				}
				if got[field] != want {
					t.Errorf("%s, thread %s: %s is %q, want %q", name, got["Pid"], field, got[field], want)
				}
			}
		}
	}
	// What belongs to a process that is not dumpable belongs to root in /proc (proc(5)).
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", d.pid), &st); err != nil || st.Uid != 0 {
		t.Errorf("pid 1: its files belong to %d, want root: it is dumpable; %v", st.Uid, err)
	}
	if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", target[0]), &st); err != nil || st.Uid != domainID {
		t.Errorf("target: its files belong to %d, want %d: debuggers of its own cannot work; %v", st.Uid, domainID, err)
	}
}

func TestPidOneHoldsNothingOfItsTarget(t *testing.T) {
	d, stdin, out := waiting(t, func(w *world) {
		w.pass(nullFile(t)) // one that no plan names: the supervisor was born with it
	})
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", d.pid, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		switch fd, _ := strconv.Atoi(n.Name()); {
		case fd <= 2 && to == "/dev/null":
		case fd == StatusFD && strings.HasPrefix(to, "socket:"):
		case strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "/cpu."): // the Go runtime's own: epoll, the cgroup's processors
		default:
			t.Errorf("pid 1 holds descriptor %s: %s", n.Name(), to)
		}
	}
	// The target closes its output and stays: EOF must come all the same, and its broken pipe too.
	stdin.Close()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("want EOF, got %q, %v", rest, err)
	}
	if m := d.next(MsgExited); m.B != 0 {
		t.Errorf("want exit status 0, got %+v", m)
	}
}

func TestOutputEndsWhenTheTargetClosesItWhileItLives(t *testing.T) {
	w := mustWorld(t, "/usr/bin/bash", "-c", "echo said; exec >&- 2>&-; exec sleep 60")
	r := w.output(t)
	d := launch(t, w)
	d.next(MsgRunning)
	if out, err := io.ReadAll(r); string(out) != "said\n" || err != nil {
		t.Errorf("want EOF after what was said, got %q, %v", out, err)
	}
	d.tell(Message{Type: MsgSignal, A: uint32(unix.SIGTERM)})
	if m := d.next(MsgExited); m.A != 1 || m.B != uint32(unix.SIGTERM) {
		t.Errorf("want the target alive until it was signalled, got %+v", m)
	}
}

func TestTargetIsBornWithThreeDescriptors(t *testing.T) {
	w := mustWorld(t, "/usr/bin/ls", "/proc/self/fd")
	for range 3 { // what no plan names is not handed on
		w.pass(nullFile(t))
	}
	// ls opens the folder itself.
	if out := run(t, w); out != "0\n1\n2\n3\n" {
		t.Errorf("want 0 to 2, and 3 for the folder, got %q", out)
	}
}

func TestTargetFindsSignalsMaskAndGroupsFresh(t *testing.T) {
	w := mustWorld(t, "/usr/bin/cat", "/proc/self/status", "/proc/self/stat", "/proc/self/limits", "/proc/self/cgroup")
	out := run(t, w)
	got := statusFields(out)
	for field, want := range map[string]string{"SigBlk": "0000000000000000", "SigIgn": "0000000000000000", "SigCgt": "0000000000000000",
		"ShdPnd": "0000000000000000", "Umask": "0022", "NSpid": "", "PPid": "1"} {
		if field == "NSpid" {
			want = got["Pid"]
		}
		if got[field] != want {
			t.Errorf("%s is %q, want %q", field, got[field], want)
		}
	}
	var stat []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, " (cat) ") {
			stat = strings.Fields(line)
		}
	}
	// pid, comm, state, ppid, pgrp, session, tty_nr, tpgid: proc_pid_stat(5).
	if len(stat) < 8 || stat[4] != stat[0] || stat[5] != "1" || stat[6] != "0" {
		t.Errorf("want a group of its own in pid 1's session, without a terminal, got %v", stat)
	}
	if !strings.Contains(out, "Max core file size        1                    1") {
		t.Errorf("want the plan's limit on core files, got:\n%s", out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "0::") && line != "0::/\n" {
			t.Errorf("want the root of a cgroup namespace, got %q", line)
		}
	}
}

func TestTerminalIsTheTargetsControllingTerminal(t *testing.T) {
	for _, front := range []bool{true, false} {
		t.Run(fmt.Sprintf("front %v", front), func(t *testing.T) {
			w := mustWorld(t, "/usr/bin/bash", "-c", "tty; stty size; echo >/dev/tty opened; cat /proc/self/stat; readlink /proc/self/fd/2; ls -ln /dev/pts/0")
			w.plan.Terminal, w.plan.Front = true, front
			w.plan.Stdio[0] = StdioTerminal
			r := w.output(t)
			d := launch(t, w)
			d.next(MsgTerminal)
			if err := unix.IoctlSetWinsize(int(d.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 11, Col: 22}); err != nil {
				t.Fatal(err)
			}
			d.tell(Message{Type: MsgDressed})
			d.next(MsgRunning)
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(data), "\n")
			if len(lines) < 6 || lines[0] != "/dev/pts/0" || lines[1] != "11 22" || !strings.HasPrefix(lines[3], "pipe:") {
				t.Fatalf("want the view's own terminal, dressed before the target ran, and stderr a pipe, got %q", lines)
			}
			stat := strings.Fields(lines[2])
			group, session, terminal, foreground := stat[4], stat[5], stat[6], stat[7]
			if session != "1" || terminal == "0" || group == "1" || (foreground == group) != front || (foreground == "1") == front {
				t.Errorf("front %v: session %s, terminal %s, group %s, foreground group %s", front, session, terminal, group, foreground)
			}
			if fields := strings.Fields(lines[4]); fields[0] != "crw--w----" || fields[2] != fmt.Sprint(domainID) {
				t.Errorf("want the terminal its owner's alone, got %q", lines[4])
			}
			shown := make([]byte, 64)
			if n, err := d.master.Read(shown); err != nil || string(shown[:n]) != "opened\r\n" {
				t.Errorf("want what was written to /dev/tty on the master, got %q, %v", shown[:n], err)
			}
			d.next(MsgExited)
		})
	}
}

func TestStopsAndContinuesAreReported(t *testing.T) {
	d, stdin, out := waiting(t, nil)
	d.tell(Message{Type: MsgSignal, A: uint32(unix.SIGSTOP)})
	if m := d.next(MsgStopped); m.A != uint32(unix.SIGSTOP) {
		t.Errorf("want SIGSTOP reported, got %+v", m)
	}
	d.tell(Message{Type: MsgContinue, A: 1})
	stdin.WriteString("again\n")
	if line, err := out.ReadString('\n'); line != "again\n" {
		t.Errorf("want the target to go on, got %q, %v", line, err)
	}
	d.tell(Message{Type: MsgSignal, A: uint32(unix.SIGKILL)})
	if m := d.next(MsgExited); m.A != 1 || m.B != uint32(unix.SIGKILL) {
		t.Errorf("want death by SIGKILL, got %+v", m)
	}
}

// What is left in the namespace ends with the target, whoever its parent is.
func TestNothingOutlivesTheTarget(t *testing.T) {
	w := mustWorld(t, "/usr/bin/bash", "-c", "setsid bash -c 'trap \"\" HUP TERM; echo there; exec sleep 60' & read -r line < <(sleep 0.05); echo gone; exit 7")
	r := bufio.NewReader(w.output(t))
	d := launch(t, w)
	d.next(MsgRunning)
	if m := d.next(MsgExited); m.A != 0 || m.B != 7 {
		t.Errorf("want exit status 7, got %+v", m)
	}
	d.wait()
	done := make(chan error)
	go func() {
		_, err := io.ReadAll(r)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("a process holds the pipe still")
	}
}

func TestUnknownOrderEndsTheDomain(t *testing.T) {
	for name, data := range map[string][]byte{"unknown": head(99, 0, 0), "pid 1's own": head(MsgExited, 0, 0), "half": head(MsgSignal, 0, 0)[:4], "empty": {}} {
		t.Run(name, func(t *testing.T) {
			d, _, _ := waiting(t, nil)
			send(t, d.status, data)
			if ws := d.wait(); ws.ExitStatus() != 125 {
				t.Errorf("want pid 1 to exit with 125, got %v", ws)
			}
		})
	}
}

// supervisorChild stands in for the supervisor. It starts a domain and is killed once the target runs.
func supervisorChild(id json.RawMessage) (any, error) {
	runtime.LockOSThread() // PDEATHSIG is the end of this thread
	if err := json.Unmarshal(id, &domainID); err != nil {
		return nil, err
	}
	const given, status = 5, 6
	unix.CloseOnExec(given)
	unix.CloseOnExec(status)
	w, err := newWorld("/usr/bin/sleep", "60")
	if err != nil {
		return nil, err
	}
	if _, err := w.start(status, given, syscall.SIGKILL, nil); err != nil {
		return nil, err
	}
	unix.Close(given)
	if m, _, err := Receive(status); err != nil || m.Type != MsgRunning {
		return nil, fmt.Errorf("want the target running, got %+v, %w", m, err)
	}
	return nil, unix.Kill(os.Getpid(), unix.SIGKILL)
}

// The stand-in is killed while its end of the status socket stays open here: what ends the domain is PDEATHSIG, set
// again after the change of ids had cleared it.
func TestDomainEndsWithItsSupervisor(t *testing.T) {
	kerneltest.RequireRoot(t)
	kerneltest.RequireLandlock(t, 1)
	nothingLeft(t)
	ours, theirs, err := statusPair()
	if err != nil {
		t.Fatal(err)
	}
	status, given := os.NewFile(uintptr(ours), "status"), os.NewFile(uintptr(theirs), "given")
	defer status.Close()
	stderr, err := kerneltest.Child{Name: "supervisor", Input: domainID, Setup: func(cmd *exec.Cmd) { cmd.ExtraFiles = append(cmd.ExtraFiles, given, status) }}.Start(t)
	given.Close()
	if err == nil || err.Error() != "signal: killed" {
		t.Fatalf("want the stand-in killed, got %v\n%s", err, stderr)
	}
	// EOF comes when pid 1 is gone.
	if err := unix.SetsockoptTimeval(ours, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience / time.Second)}); err != nil {
		t.Fatal(err)
	}
	if m, _, err := Receive(ours); err != io.EOF {
		t.Errorf("want the domain gone, got %+v, %v", m, err)
	}
}

// The second cord: the status socket ends, the supervisor lives.
func TestDomainEndsWithItsStatusSocket(t *testing.T) {
	d, _, _ := waiting(t, nil)
	if err := unix.Shutdown(d.status, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	if ws := d.wait(); ws.ExitStatus() != 125 {
		t.Errorf("want pid 1 to exit with 125, got %v", ws)
	}
}

// Nothing but Landlock's scope and pid 1's being undumpable stands between two processes of one id here: the filter
// allows everything. The same on the target itself shows that the attempts work.
func TestTargetCannotReachPidOne(t *testing.T) {
	const script = `for pid in 1 $$; do
	kill -0 $pid 2>/dev/null; echo $pid kill $?
	for f in environ auxv maps; do head -c 1 /proc/$pid/$f >/dev/null 2>&1; echo $pid $f $?; done
	for f in fd map_files; do ls /proc/$pid/$f >/dev/null 2>&1; echo $pid $f $?; done
	for f in exe cwd root; do readlink /proc/$pid/$f >/dev/null 2>&1; echo $pid $f $?; done
	(: </proc/$pid/mem) 2>/dev/null; echo $pid mem $?
done`
	kerneltest.RequireLandlock(t, 6)
	w := mustWorld(t, "/usr/bin/bash", "-c", script)
	tries := 0
	for line := range strings.Lines(run(t, w)) {
		f := strings.Fields(line)
		if reached := f[2] == "0"; reached != (f[0] != "1") {
			t.Errorf("pid %s, %s: exit status %s", f[0], f[1], f[2])
		}
		tries++
	}
	if tries != 20 {
		t.Errorf("want 20 attempts, got %d", tries)
	}
}
