package bashserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
)

// job starts one and returns its number.
func (s *supervisor) job(script string) string {
	s.t.Helper()
	out, errs, ws := s.output("--background", "-c", script)
	id := strings.TrimSpace(out)
	if ws.ExitStatus() != 0 || id == "" || !strings.Contains(errs, "sharness-bash --job-log "+id) {
		s.t.Fatalf("--background: %q %q %v", out, errs, ws)
	}
	return id
}

func (s *supervisor) wantOutput(want string, args ...string) {
	s.t.Helper()
	if out, errs, ws := s.output(args...); out != want || errs != "" || ws.ExitStatus() != 0 {
		s.t.Errorf("%v: got %q %q %v, want %q", args, out, errs, ws, want)
	}
}

func TestJobOutlivesItsClientAndCanBeSeenAndEnded(t *testing.T) {
	s := start(t, Config{Jobs: 2}, inProcess)
	id := s.job("echo out; echo err >&2; read x && echo input; touch begun; exec sleep 1000")
	eventually(t, "the job runs", func() bool { _, err := os.Stat(filepath.Join(s.dir, "begun")); return err == nil })
	s.wantOutput("out\nerr\n", "--job-log", id)
	if out, _, _ := s.output("--jobs"); !strings.HasPrefix(out, id+"\trunning\t") || !strings.HasSuffix(out, "exec sleep 1000\n") {
		t.Errorf("--jobs: got %q", out)
	}
	out, _, ws := s.output("--kill", id)
	if !strings.HasPrefix(out, id+"\tsignal 9\t") || ws.ExitStatus() != 0 {
		t.Errorf("--kill: got %q %v", out, ws)
	}
	if r := s.reason(t); r != wire.ReasonStopped {
		t.Errorf("killed for reason %d", r)
	}
	s.wantOutput("out\nerr\n", "--job-log", id) // what it said stays
	var list []struct {
		Job      uint64
		Running  bool
		ExitCode int `json:"exit_code"`
		Signal   int
		Cwd      string
	}
	out, _, _ = s.output("--json", "--jobs")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || fmt.Sprint(list[0].Job) != id || list[0].Running || list[0].ExitCode != 137 || list[0].Signal != 9 || list[0].Cwd != s.dir {
		t.Errorf("--json --jobs: %q, %v", out, err)
	}
	want := []event.Type{event.CommandStart, event.CommandEnd}
	eventually(t, "events", func() bool { return len(s.eventTypes()) >= 2 })
	if got := s.eventTypes(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestClientOfAJobIsLetGo(t *testing.T) {
	s := start(t, Config{Jobs: 1}, inProcess)
	// What a job inherits would hold this pipe open.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.command("--json", "--background", "-c", "sleep 1000")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil || !strings.HasPrefix(b.String(), `{"job":`) {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

func TestJobsAreBounded(t *testing.T) {
	s := start(t, Config{Jobs: 1, JobLog: 1000}, inProcess)
	id := s.job("printf '%04999d\\n' 7; touch begun; sleep 1000")
	eventually(t, "the job runs", func() bool { _, err := os.Stat(filepath.Join(s.dir, "begun")); return err == nil })
	if _, errs, ws := s.output("--background", "-c", "true"); ws.ExitStatus() != 2 || !strings.Contains(errs, "as many jobs run as there may be, 1;") || !strings.Contains(errs, "raise sandbox.background.jobs") {
		t.Errorf("one too many: %q %v", errs, ws)
	}
	out, errs, _ := s.output("--job-log", id)
	if out != strings.Repeat("0", 998)+"7\n" || errs != "sharness: the first 4000 bytes of its output are not kept\n" {
		t.Errorf("log: %d bytes, %q", len(out), errs)
	}
	s.output("--kill", id)
	for range keepEnded + 3 {
		id = s.job("true")
		eventually(t, "its end", func() bool {
			out, _, _ := s.output("--json", "--job-log", id)
			return strings.Contains(out, `"running":false`)
		})
	}
	if out, _, _ := s.output("--jobs"); strings.Count(out, "\n") != keepEnded {
		t.Errorf("ended jobs are kept for ever: %q", out)
	}
}

// Whoever sees a job's end may start the next, also while the one that started it has not read its number yet.
func TestPlaceOfAnEndedJobIsFree(t *testing.T) {
	s := start(t, Config{Jobs: 1, MaxCommands: 1}, inProcess)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil { // no room for a number
		_, err = unix.Write(fd, make([]byte, 4096))
	}
	slow := s.command("--background", "-c", "exit 3")
	slow.Stdout = w
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool { out, _, _ := s.output("--jobs"); return strings.Contains(out, "\texit 3\t") })
	s.wantOutput("next\n", "-c", "echo next")
	s.job("true")
	r.Close()
	slow.Wait()
}

func TestJobsAreRefusedWhereTheManifestHasNone(t *testing.T) {
	s := start(t, Config{}, inProcess)
	if out, errs, ws := s.output("--background", "-c", "true"); out != "" || ws.ExitStatus() != 2 || !strings.Contains(errs, "sandbox.background.keep") {
		t.Errorf("got %q %q %v", out, errs, ws)
	}
	for _, args := range [][]string{{"--kill"}, {"--kill", "x"}, {"--job-log", "1", "2"}, {"--background"}, {"--json"}, {"--jobs", "-c"}, {"--json", "--background"}} {
		if _, errs, ws := s.output(args...); ws.ExitStatus() != 2 || !strings.Contains(errs, "usage: sharness-bash") {
			t.Errorf("%v: %q %v", args, errs, ws)
		}
	}
	if _, errs, ws := s.output("--kill", "99"); ws.ExitStatus() != 1 || !strings.Contains(errs, "there is no job 99") {
		t.Errorf("an unknown job: %q %v", errs, ws)
	}
}

func TestJobWithoutACommandIsRefused(t *testing.T) {
	s := start(t, Config{Jobs: 1}, inProcess)
	for _, args := range [][]string{{"-c"}, {"-lc"}, {"-c", "-l"}, {"-x"}} {
		out, errs, ws := s.output(append([]string{"--background"}, args...)...)
		if out != "" || ws.ExitStatus() != 2 || !strings.Contains(errs, strings.Join(args, " ")+": no command is there to be run; usage: ") {
			t.Errorf("%v: %q %q %v", args, out, errs, ws)
		}
	}
}

func TestSecretsAreNeitherInTheLogNorInTheNameOfAJob(t *testing.T) {
	s := start(t, Config{Jobs: 1, Secrets: []Secret{{Name: "KEY", Value: "hunter2hunter2"}}}, inProcess)
	id := s.job("echo hunter2hunter2; touch begun")
	eventually(t, "its end", func() bool { out, _, _ := s.output("--jobs"); return strings.Contains(out, "exit 0") })
	for _, args := range [][]string{{"--jobs"}, {"--json", "--jobs"}, {"--job-log", id}} {
		if out, _, _ := s.output(args...); strings.Contains(out, "hunter2") || !strings.Contains(out, "[redacted:KEY]") {
			t.Errorf("%v: %q", args, out)
		}
	}
}

func TestClientThatDoesNotReadItsAnswerHoldsNothing(t *testing.T) {
	s := start(t, Config{Jobs: 1, JobLog: 1 << 20}, inProcess)
	id := s.job("head -c 1000000 /dev/zero; touch begun")
	eventually(t, "its end", func() bool { out, _, _ := s.output("--jobs"); return strings.Contains(out, "exit 0") })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd := s.command("--job-log", id)
	cmd.Stdout = w // nobody reads
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pipe is full", func() bool { n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ); return err == nil && n >= 1<<16 })
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the connection is done", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.done) == int(s.next) })
}

// It does not have to end for that: the job's end has to give its place back.
func TestClientOfAJobThatDoesNotReadHoldsNoPlace(t *testing.T) {
	s := start(t, Config{Jobs: 1}, inProcess)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.Write(make([]byte, 1<<16)); err != nil { // as much as fits
		t.Fatal(err)
	}
	cmd := s.command("--background", "-c", "true")
	cmd.Stdout = w // nobody reads
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	eventually(t, "the job has ended", func() bool { out, _, _ := s.output("--jobs"); return strings.Contains(out, "exit 0") })
	for end := time.Now().Add(4 * answerTime); ; time.Sleep(10 * time.Millisecond) {
		if _, errs, ws := s.output("--background", "-c", "true"); ws.ExitStatus() == 0 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("another job has no room: %s", errs)
		}
	}
}

func TestSecretIsInNoListOfJobsAndNoRefusal(t *testing.T) {
	const value = "hunter2hunter2"
	s := start(t, Config{Jobs: 1, Secrets: []Secret{{Name: "KEY", Value: value}}}, inProcess)
	dir := filepath.Join(s.dir, value)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := s.command("--background", "-c", "sleep 1000")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, _, _ := s.output("--json", "--jobs")
	if strings.Contains(out, value) || !strings.Contains(out, "/[redacted:KEY]") {
		t.Errorf("--json --jobs: %s", out)
	}
	cmd = s.command("-c", "true")
	cmd.Dir = t.TempDir() + "/" + value
	if err := os.Mkdir(cmd.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	said, err := cmd.CombinedOutput()
	if err == nil || strings.Contains(string(said), value) || !strings.Contains(string(said), "/[redacted:KEY]") {
		t.Errorf("outside the workspace: %v, %s", err, said)
	}
}

func TestRingKeepsTheEnd(t *testing.T) {
	for _, writes := range [][]int{{1}, {10}, {3, 3, 3, 3}, {25}, {9, 2}, {10, 10}, {7, 30, 1}} {
		r := &ring{max: 10}
		var all []byte
		for _, n := range writes {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte('a' + (len(all)+i)%26)
			}
			all = append(all, b...)
			if got, err := r.Write(b); got != n || err != nil {
				t.Fatalf("%v: wrote %d, %v", writes, got, err)
			}
		}
		got, lost := r.contents()
		if want := all[max(0, len(all)-10):]; string(got) != string(want) || lost != int64(len(all)-len(want)) {
			t.Errorf("%v: got %q and %d lost, want %q", writes, got, lost, want)
		}
	}
}
