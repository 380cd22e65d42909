package bashserver

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
)

func TestClientEndsAsTheCommandDid(t *testing.T) {
	s := start(t, Config{}, inProcess)
	for _, code := range []int{0, 1, 2, 42, 126, 127, 255} {
		if _, _, ws := s.output("-c", fmt.Sprintf("exit %d", code)); !ws.Exited() || ws.ExitStatus() != code {
			t.Errorf("exit %d: %v", code, ws)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGINT, syscall.SIGABRT} {
		if _, _, ws := s.output("-c", fmt.Sprintf("kill -%d $$", sig)); !ws.Signaled() || ws.Signal() != sig || ws.CoreDump() {
			t.Errorf("killed by %v: %v", sig, ws)
		}
	}
	if _, _, ws := s.output("-c", "no-such-command"); ws.ExitStatus() != 127 {
		t.Errorf("unknown command: %v", ws)
	}
}

func TestEveryFormOfTheShellCallWorks(t *testing.T) {
	s := start(t, Config{}, inProcess)
	for _, args := range [][]string{
		{"-c", "echo $0 $1", "x", "y"}, {"-lc", "echo $0 $1", "x", "y"}, {"-c", "-l", "echo $0 $1", "x", "y"},
	} {
		if out, errs, ws := s.output(args...); out != "x y\n" || ws != 0 {
			t.Errorf("%q: %q, %q, %v", args, out, errs, ws)
		}
	}
	if _, errs, _ := s.output("-c", "nope"); !strings.HasPrefix(errs, "bash: ") {
		t.Errorf("the shell calls itself: %q", errs)
	}
	cmd := s.command("-c", "echo $0")
	cmd.Args[0] = "mysh"
	if out, _, _ := s.finish(cmd); out != "mysh\n" {
		t.Errorf("argv[0] of the caller's: %q", out)
	}
}

func TestCommandRunsWhereTheClientIs(t *testing.T) {
	s := start(t, Config{}, inProcess)
	sub := filepath.Join(s.dir, "a b")
	os.Mkdir(sub, 0o755)
	cmd := s.command("-c", "pwd -P; echo $PWD")
	cmd.Dir = sub
	if out, _, _ := s.finish(cmd); out != sub+"\n"+sub+"\n" {
		t.Errorf("got %q", out)
	}
	cmd = s.command("-c", "pwd")
	cmd.Dir = "/"
	if _, errs, ws := s.finish(cmd); ws.ExitStatus() != 2 || !strings.HasSuffix(errs, fmt.Sprintf("is outside the workspace %q; start it in a folder in there\n", s.dir)) {
		t.Errorf("outside the workspace: %q, %v", errs, ws)
	}
}

// Agents leave one end of a socketpair open as fd 0; nobody may wait for its end.
func TestStdinLeftOpenDoesNotHoldTheEnd(t *testing.T) {
	s := start(t, Config{}, inProcess)
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(p[0]), "ours"), os.NewFile(uintptr(p[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	cmd := s.command("-c", "cat <<EOF\nhere\nEOF\nread x; echo got $x")
	cmd.Stdin = theirs
	ours.WriteString("there\n")
	if out, _, ws := s.finish(cmd); out != "here\ngot there\n" || ws != 0 {
		t.Errorf("got %q, %v", out, ws)
	}
	if fl, _ := unix.FcntlInt(theirs.Fd(), unix.F_GETFL, 0); fl&unix.O_NONBLOCK != 0 {
		t.Error("the client's descriptor was made non-blocking for everybody who has it")
	}
}

func TestStdinReachesTheCommandWithItsEnd(t *testing.T) {
	s := start(t, Config{}, inProcess)
	big := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB, through every pipe on the way many times
	cmd := s.command("-c", "md5sum")
	cmd.Stdin = strings.NewReader(big)
	direct := exec.Command("md5sum")
	direct.Stdin = strings.NewReader(big)
	want, err := direct.Output()
	if err != nil {
		t.Fatal(err)
	}
	if out, _, _ := s.finish(cmd); out != string(want) {
		t.Errorf("got %q, want %q", out, want)
	}
}

// A loop that reads a file and runs a command for each line works only when a command takes what it reads and no more.
func TestCommandTakesFromAFileOnlyWhatItReads(t *testing.T) {
	s := start(t, Config{}, inProcess)
	name := filepath.Join(s.dir, "lines")
	os.WriteFile(name, []byte("one\ntwo\nthree\n"), 0o644)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, want := range []string{"one\n", "", "two\n", "three\n", ""} {
		line := "read -r x && echo $x"
		if want == "" {
			line = "true"
		}
		cmd := s.command("-c", line)
		cmd.Stdin = f
		if out, _, _ := s.finish(cmd); out != want {
			t.Errorf("%s: got %q, want %q", line, out, want)
		}
	}
}

func TestOneFileForBothOutputsKeepsTheOrder(t *testing.T) {
	s := start(t, Config{}, inProcess)
	name := filepath.Join(s.dir, "out")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("before\n")
	cmd := s.command("-c", "for i in $(seq 200); do echo o$i; echo e$i >&2; done")
	cmd.Stdout, cmd.Stderr = f, f
	s.finish(cmd)
	want := "before\n"
	for i := 1; i <= 200; i++ {
		want += fmt.Sprintf("o%d\ne%d\n", i, i)
	}
	if got, _ := os.ReadFile(name); string(got) != want {
		t.Errorf("%d bytes in another order than they were written", len(got))
	}
}

func TestOutputContinuesAtTheFilesOwnPosition(t *testing.T) {
	s := start(t, Config{}, inProcess)
	name := filepath.Join(s.dir, "out")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		f.WriteString("ours\n")
		cmd := s.command("-c", "echo theirs")
		cmd.Stdout = f
		s.finish(cmd)
	}
	if got, _ := os.ReadFile(name); string(got) != strings.Repeat("ours\ntheirs\n", 3) {
		t.Errorf("got %q", got)
	}
}

func TestClosedOutputIsEPIPEForTheCommand(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := exec.Command("bash", "-c", client+` -c 'yes; echo yes ended with $? >&2' | head -1; wait`)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
	if out, errs, _ := s.finish(cmd); out != "y\n" || errs != "yes ended with 141\n" {
		t.Errorf("got %q, %q", out, errs)
	}
}

func TestClosedDescriptorsOfTheClientAreNull(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := exec.Command("bash", "-c", client+` -c 'cat; echo out; echo err >&2' <&- >&-; echo $?`)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
	if out, errs, _ := s.finish(cmd); out != "0\n" || errs != "err\n" {
		t.Errorf("got %q, %q", out, errs)
	}
}

func TestOddDescriptorsAreRefusedInWords(t *testing.T) {
	s := start(t, Config{}, inProcess)
	before := s.settled(t)
	for _, redirect := range []string{"</", "0<&9 9</", ">/proc/self/oom_score_adj"} {
		cmd := exec.Command("bash", "-c", client+` -c 'echo 1' `+redirect)
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
		if redirect == "0<&9 9</" {
			cmd.Args[2] = "exec 9</; " + client + " -c 'echo 1' <&9"
		}
		if _, errs, ws := s.finish(cmd); ws.ExitStatus() != 2 || !strings.Contains(errs, "sharness-bash: descriptor ") {
			t.Errorf("%s: %q, %v", redirect, errs, ws)
		}
	}
	eventually(t, "descriptors closed", func() bool { return descriptors(t) <= before })
}

func TestFurtherDescriptorsOfTheClientStayItsOwn(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := exec.Command("bash", "-c", "exec 7</dev/zero 8>mine; "+client+" -c 'readlink /proc/self/fd/*'")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
	if out, _, _ := s.finish(cmd); !strings.Contains(out, "pipe:") || strings.Contains(out, "zero") || strings.Contains(out, "mine") {
		t.Errorf("got %q", out)
	}
}

func TestCommandHasOnlyFreshPipes(t *testing.T) {
	s := start(t, Config{}, inProcess)
	f, err := os.Create(filepath.Join(s.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := s.command("-c", "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2")
	cmd.Stdout = f
	s.finish(cmd)
	b, _ := os.ReadFile(f.Name())
	for _, l := range strings.Fields(string(b)) {
		if !strings.HasPrefix(l, "pipe:") {
			t.Errorf("a command holds %s", l)
		}
	}
	if n := len(strings.Fields(string(b))); n != 3 {
		t.Errorf("%d descriptors seen", n)
	}
}

func TestBackgroundProcessDoesNotHoldTheEnd(t *testing.T) {
	s := start(t, Config{}, inProcess)
	if out, _, ws := s.output("-c", "(sleep 100; echo late) & echo now"); out != "now\n" || ws != 0 {
		t.Errorf("got %q, %v", out, ws)
	}
}

func TestLargeRequestArrivesWhole(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := s.command("-c", `echo ${#1} ${#BIG} $#`, "x", strings.Repeat("a", 131071))
	for range 1000 {
		cmd.Args = append(cmd.Args, strings.Repeat("b", 500))
	}
	cmd.Env = append(cmd.Env, "BIG="+strings.Repeat("c", 131000))
	if out, errs, ws := s.finish(cmd); out != "131071 131000 1001\n" {
		t.Errorf("got %q, %q, %v", out, errs, ws)
	}
	// What find -exec {} + makes of it: as much as an exec takes by default.
	cmd = s.command("-c", "echo $#", "x")
	for range 60000 {
		cmd.Args = append(cmd.Args, "some/folder/some_file.go")
	}
	if out, errs, ws := s.finish(cmd); out != "60000\n" {
		t.Errorf("many arguments: %q, %q, %v", out, errs, ws)
	}
	cmd = s.command("-c", "true", "x")
	for range wire.MaxArgs {
		cmd.Args = append(cmd.Args, "")
	}
	if _, errs, ws := s.finish(cmd); ws.ExitStatus() != 2 || !strings.Contains(errs, "more than 131072 arguments") {
		t.Errorf("too many arguments: %q, %v", errs, ws)
	}
}

func TestEnvironmentFollowsThePolicy(t *testing.T) {
	s := start(t, Config{
		Env:     Env{Drop: []string{"CLAUDE_CODE_MESSAGING_*", "API_KEY"}, Set: map[string]string{"TZ": "UTC"}},
		Secrets: []Secret{{Name: "GH_TOKEN", Value: "ghp_0123456789"}},
	}, inProcess)
	cmd := s.command("-c", "env -0 | sort -z | tr '\\0' '\\n'")
	cmd.Env = []string{"SHARNESS_SOCKET=" + s.sock, "PATH=/usr/bin", "KEEP=a=b", "API_KEY=1", "CLAUDE_CODE_MESSAGING_SOCKET=/x",
		"LD_PRELOAD=/x.so", "BASH_ENV=/x", "ENV=/x", "GH_TOKEN=ghp_0123456789", "HOME=/root", "TZ=CET", "SHELL=/x", ""}
	got, _, _ := s.finish(cmd)
	want := "HOME=" + s.dir + "\nKEEP=a=b\nLOGNAME=agent\nPATH=/usr/bin\nPWD=" + s.dir +
		"\nSHELL=/usr/bin/bash\nSHLVL=1\nTMPDIR=/tmp\nTZ=UTC\nUSER=agent\n_=/usr/bin/env\n"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestHundredMebibytesOfStdinArriveWhole(t *testing.T) {
	s := start(t, Config{}, inProcess)
	const size = 100 << 20
	sum := sha256.New()
	file := filepath.Join(s.dir, "large")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range size / len(block) {
		for j := range block {
			block[j] = byte(i + j*j>>8)
		}
		sum.Write(block)
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprintf("%x  -\n", sum.Sum(nil))
	for _, script := range []string{client + " -c sha256sum < large", "cat large | " + client + " -c sha256sum"} {
		cmd := exec.Command("bash", "-c", script)
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
		if out, err := cmd.Output(); string(out) != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", script, out, err, want)
		}
	}
}
