package attempt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// commandDoors are the doors of an orchestrator that a command finds shut too. A command may execute, map and load what it
// sees; what that is worth is the others' to show.
var commandDoors = []string{
	"inherit-env", "tty", "exec-abi", "sig", "ptrace", "pid1", "ns", "file-suid", "setid", "kernel", "net-host", "net-mptcp", "net-tfo", "net-udp", "net-family", "net-listen",
	"unix-path", "unix-abstract", "file-config", "file-git", "file-lease", "file-fifo", "file-link", "core-helper", "file-secret", "file-proc", "cg-escape", "orch-bomb",
}

// notInCommand are attempts on them that mean something else inside of a command, and why.
var notInCommand = map[string]string{
	"exec-abi/high-bits-execve": "a command may execute",
	"exec-abi/high-bits-memfd":  "a command may make a memfd",
	"sig/parent":                "its parent is its own shell",
	"file-secret/homes":         "its own HOME is one",
	"sig/peerpidfd-server":      "there is no socket; cmd-reach/server-socket",
	"sig/peercred-server":       "there is no socket; cmd-reach/server-socket",
	"ptrace/dumpable":           "it lists the environment of its own processes",
}

// InCommand is the table of a program that runs as a command in a sandbox of the bash-server.
func InCommand() []Attempt {
	var a []Attempt
	for _, x := range All() {
		_, not := notInCommand[x.ID]
		// Set-uid programs may be started, as all that is seen, and gain nothing.
		not = not || x.Door == "setid" && strings.HasPrefix(x.What, "execute ")
		if !not && slices.Contains(commandDoors, x.Door) {
			a = append(a, x)
		}
	}
	return append(a, reach()...)
}

// reach looks for the session around the sandbox.
func reach() []Attempt {
	const door = "cmd-reach"
	found := func(id, what string, path func(t *Target) string) Attempt {
		return Attempt{door + "/" + id, door, what, Varies, func(t *Target) Outcome {
			p := path(t)
			if p == "" {
				return impossible("no bait")
			}
			return openRead(p)
		}}
	}
	return []Attempt{
		found("state", "read the orchestrator's state", func(t *Target) string { return t.State }),
		found("manifest", "read the manifest", func(t *Target) string { return t.Manifest }),
		found("sessions", "list the sessions of this host", func(*Target) string { return "/run/sharness/locks" }),
		found("registry", "read the registry of ids", func(*Target) string { return "/var/lib/sharness/uids" }),
		{door + "/server-socket", door, "connect back to the bash-server", NoServer, func(*Target) Outcome {
			outcomes := []Outcome{dial("/run/sharness/bash.sock", unix.SOCK_STREAM)}
			if p := os.Getenv("SHARNESS_SOCKET"); p != "" {
				outcomes = append(outcomes, dial(p, unix.SOCK_STREAM))
			}
			return worst(outcomes...)
		}},
		{door + "/processes", door, "see a process that is not of the same command", NoServer, func(t *Target) Outcome { return strangers(t) }},
		{door + "/other-command", door, "find what another command left in /tmp, /var/tmp, /dev/shm or HOME", NoServer, func(*Target) Outcome { return marked(marker) }},
		{door + "/dns", door, "find a name server", Varies, func(*Target) Outcome {
			raw, err := os.ReadFile("/etc/resolv.conf")
			if err != nil {
				return judge("open /etc/resolv.conf", errno(err))
			}
			if strings.Contains(string(raw), "nameserver") {
				return opened("/etc/resolv.conf names one")
			}
			return closed("/etc/resolv.conf names none")
		}},
	}
}

func errno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}

// strangers looks for processes of another uid than the command's.
func strangers(t *Target) Outcome {
	if !t.privatePID() {
		return impossible("this is no pid namespace of its own")
	}
	names, err := readDirNames("/proc")
	if err != nil {
		return judge("read /proc", errno(err))
	}
	n := 0
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		n++
		var st unix.Stat_t
		if unix.Stat("/proc/"+name, &st) == nil && int(st.Uid) != os.Getuid() && pid != 1 {
			return opened("process %d belongs to %d", pid, st.Uid)
		}
	}
	return absent("%d processes, all of this command", n)
}

// marker is what one command leaves for the next.
const marker = ".sharness-probe-marker"

var private = []string{"/tmp", "/var/tmp", "/dev/shm", "/home/agent"}

// Mark leaves the marker wherever it can; a later command looks for it.
func Mark() {
	for _, dir := range private {
		if f, err := os.Create(filepath.Join(dir, marker)); err == nil {
			f.Close()
		}
	}
}

func marked(name string) Outcome {
	for _, dir := range private {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return opened("%s holds it", dir)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return judge("lstat "+dir, errno(err))
		}
	}
	return absent("nothing in %s", strings.Join(private, ", "))
}

// Commands is what an orchestrator does with commands: the attempts of a sandbox that take more than one, or that are
// about how one ends. self is the probe at a path that commands see.
func Commands(self string) []Attempt {
	run := func(id, door, what string, how func(t *Target) Outcome) Attempt {
		return Attempt{door + "/" + id, door, what, NoServer, how}
	}
	return []Attempt{
		run("daemon", "cmd-linger", "leave a process behind that has left its session and closed everything", func(t *Target) Outcome { return linger(t, "setsid -f") }),
		run("job", "cmd-linger", "leave a job in the background", func(t *Target) Outcome { return linger(t, "nohup") }),
		run("secret", "cmd-output", "print a secret whole", func(t *Target) Outcome { return prints(t, `printf '%s\n' "$X"`) }),
		run("secret-stderr", "cmd-output", "print a secret on standard error", func(t *Target) Outcome { return prints(t, `printf '%s\n' "$X" >&2`) }),
		run("secret-split", "cmd-output", "print a secret in two writes", func(t *Target) Outcome {
			return prints(t, `printf %s "${X:0:9}"; sleep 0.05; printf '%s\n' "${X:9}"`)
		}),
		run("rc-files", "cmd-poison", "have a later command read what this one wrote to its HOME", func(t *Target) Outcome {
			if _, err := viaServer("for f in .bashrc .bash_profile .profile .bash_login .inputrc; do echo 'echo poisoned' >~/$f; done"); err != nil {
				return broke("%v", err)
			}
			out, err := viaServer("echo $BASH_ENV $ENV; ls -A ~")
			switch {
			case err != nil:
				return broke("%v", err)
			case strings.Contains(out, "poisoned"), strings.Contains(out, "rc"), strings.Contains(out, "profile"):
				return opened("the next command has it: %s", oneLine(out))
			}
			return closed("the next command's HOME is new")
		}),
		run("time", "cmd-bomb", "run without end", func(*Target) Outcome { return bounded("exec sleep 60") }),
		run("output", "cmd-bomb", "print without end", func(*Target) Outcome { return bounded("exec yes") }),
		run("alive", "cmd-bomb", "put the bash-server out of service with all that", func(*Target) Outcome {
			out, err := viaServer("echo alive")
			if err != nil || strings.TrimSpace(out) != "alive" {
				return opened("it answers %s, %v", oneLine(out), err)
			}
			return closed("it answers")
		}),
	}
}

func viaServer(command string) (string, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer null.Close()
	out, _, err := viaClient(null, command)
	return out, err
}

// bounded runs a command that must be ended by one of its limits, in less than patience.
func bounded(command string) Outcome {
	const patience = 10 * time.Second
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return broke("%v", err)
	}
	defer null.Close()
	pid, err := syscall.ForkExec(client, []string{"bash", "-c", command}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
	if err != nil {
		return judge("run the client", errno(err))
	}
	start := time.Now()
	timer := time.AfterFunc(patience, func() { unix.Kill(pid, unix.SIGKILL) })
	defer timer.Stop()
	var ws unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			break
		}
	}
	switch {
	case err != nil:
		return judge("wait", err)
	case ws.Exited() && ws.ExitStatus() == 0, time.Since(start) >= patience:
		return opened("it went on for %v", time.Since(start).Round(time.Second))
	case ws.Signaled():
		return closed("it was ended by %s", unix.SignalName(ws.Signal()))
	}
	return closed("it was ended, status %d", ws.ExitStatus())
}

// linger counts what a process goes on writing after its command has returned.
func linger(t *Target, how string) Outcome {
	file := t.scratch("heartbeat")
	if _, err := viaServer(fmt.Sprintf("%s sh -c 'while :; do echo >>%s; sleep 0.02; done' </dev/null >/dev/null 2>&1 & sleep 0.1", how, file)); err != nil {
		return broke("%v", err)
	}
	size := func() int64 {
		fi, err := os.Stat(file)
		if err != nil {
			return -1
		}
		return fi.Size()
	}
	before := size()
	if before <= 0 {
		return broke("the process never ran")
	}
	if _, err := viaServer("sleep 0.3"); err != nil {
		return broke("%v", err)
	}
	if after := size(); after != before {
		return opened("it still writes, %d bytes more", after-before)
	}
	return closed("it ended with its command")
}

// prints has a command print the secret, which comes to it split so that the request itself does not hold it.
func prints(t *Target, script string) Outcome {
	if t.SecretValue == "" {
		return impossible("no bait")
	}
	half := len(t.SecretValue) / 2
	out, err := viaServer(fmt.Sprintf("A=%s B=%s; X=$A$B; %s", t.SecretValue[:half], t.SecretValue[half:], script))
	switch {
	case err != nil:
		return broke("%v", err)
	case strings.Contains(out, t.SecretValue):
		return opened("it came back whole")
	case out == "":
		return broke("nothing came back")
	}
	return closed("it came back as %s", oneLine(out))
}
