package attempt

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// Bounds of a survey.
const (
	surveyNames = 60000 // looked at in one mount
	surveyDirs  = 200   // in which a file is made, in one mount
)

// Survey looks what this process may really start, read, write and reach, and changes nothing that stays. say is told one
// thing at a time.
func Survey(say func(probe.Finding)) error {
	mounts, err := ownMounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if !m.has("noexec") {
			surveyStart(m, say)
		}
	}
	for _, m := range mounts {
		if m.dir && m.fstype != "proc" && m.fstype != "devpts" {
			surveyRead(m, mounts, say)
			surveyWrite(m, say)
		}
	}
	surveyReach(say)
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		say(probe.Finding{Kind: probe.Env, Name: name})
	}
	names, _ := readDirNames("/proc")
	pids := slices.DeleteFunc(names, func(n string) bool { _, err := strconv.Atoi(n); return err != nil })
	say(probe.Finding{Kind: probe.Sees, Name: "processes", Detail: fmt.Sprint(len(pids))})
	return nil
}

// ownMount is one line of mountinfo (proc_pid_mountinfo(5)).
type ownMount struct {
	path, fstype string
	options      []string
	dir          bool
}

func (m ownMount) has(option string) bool { return slices.Contains(m.options, option) }

func ownMounts() ([]ownMount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	byPath := map[string]int{}
	var out []ownMount
	for line := range strings.Lines(string(data)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 1 {
			return nil, fmt.Errorf("read mountinfo: %q", line)
		}
		path, err := strconv.Unquote(`"` + strings.ReplaceAll(l[4], `"`, `\"`) + `"`) // \040 is a space
		if err != nil {
			path = l[4]
		}
		m := ownMount{path: path, fstype: r[0], options: strings.Split(l[5], ",")}
		if fi, err := os.Stat(path); err == nil {
			m.dir = fi.IsDir()
		}
		// What is mounted upon is not seen any more.
		if i, again := byPath[path]; again {
			out[i] = m
			continue
		}
		byPath[path] = len(out)
		out = append(out, m)
	}
	return out, nil
}

// surveyStart asks the kernel whether it would execute what lies on a mount that is not noexec.
func surveyStart(m ownMount, say func(probe.Finding)) {
	n := 0
	filepath.WalkDir(m.path, func(path string, d fs.DirEntry, err error) error {
		n++
		if n > surveyNames {
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if fi, err := d.Info(); err != nil || fi.Mode()&0o111 == 0 {
			return nil
		}
		detail := ""
		switch err := mayExecute(path); err {
		case nil:
		case unix.EINVAL, unix.ENOSYS:
			detail = "by its mount and mode: this kernel cannot be asked (AT_EXECVE_CHECK)"
		default:
			return nil
		}
		if routed(path) {
			detail = "the client: what it is asked runs in a sandbox"
		}
		say(probe.Finding{Kind: probe.Start, Name: path, Detail: detail})
		return nil
	})
}

// mayExecute is execveat with AT_EXECVE_CHECK (Linux 6.14): all the checks of an execve, and no execve.
func mayExecute(path string) error {
	const check = 0x10000
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return unix.EINVAL
	}
	argv, env := []*byte{name, nil}, []*byte{nil}
	_, _, errno := unix.Syscall6(unix.SYS_EXECVEAT, atFDCWD, uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])), check, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// surveyRead counts what of a mount can be opened.
func surveyRead(m ownMount, mounts []ownMount, say func(probe.Finding)) {
	names, files, not := 0, 0, 0
	filepath.WalkDir(m.path, func(path string, d fs.DirEntry, err error) error {
		names++
		if names > surveyNames {
			return fs.SkipAll
		}
		if d != nil && d.IsDir() && path != m.path && slices.ContainsFunc(mounts, func(x ownMount) bool { return x.path == path }) {
			return fs.SkipDir // its own line
		}
		if err != nil {
			not++
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			not++
			return nil
		}
		unix.Close(fd)
		files++
		return nil
	})
	more := ""
	if names > surveyNames {
		more = fmt.Sprintf(", of the first %d names", surveyNames)
	}
	if files > 0 || not > 0 {
		say(probe.Finding{Kind: probe.Read, Name: m.path, Detail: fmt.Sprintf("%d files, %d more that do not open%s", files, not, more)})
	}
}

// surveyWrite makes a file in the folders of a mount, and removes it.
func surveyWrite(m ownMount, say func(probe.Finding)) {
	if m.has("ro") {
		return
	}
	dirs, writable := 0, 0
	filepath.WalkDir(m.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		dirs++
		if dirs > surveyDirs {
			return fs.SkipAll
		}
		name := filepath.Join(path, fmt.Sprintf(".sharness-probe-%d", os.Getpid()))
		fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil
		}
		unix.Close(fd)
		os.Remove(name)
		writable++
		return nil
	})
	if writable > 0 {
		say(probe.Finding{Kind: probe.Write, Name: m.path, Detail: fmt.Sprintf("in %d of %d folders", writable, min(dirs, surveyDirs))})
	}
}

// surveyReach lists who listens in this network namespace, by what the kernel says of it: nothing is connected to. What
// relays an endpoint listens here under the address that /etc/hosts gives it.
func surveyReach(say func(probe.Finding)) {
	hosts, _ := os.ReadFile("/etc/hosts")
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		data, _ := os.ReadFile(file)
		for i, line := range strings.Split(string(data), "\n") {
			f := strings.Fields(line)
			const listening = "0A"
			if i == 0 || len(f) < 4 || f[3] != listening {
				continue
			}
			host, port, _ := strings.Cut(f[1], ":")
			raw, err := hex.DecodeString(host)
			n, perr := strconv.ParseUint(port, 16, 16)
			if err != nil || perr != nil || len(raw) != 4 {
				continue
			}
			slices.Reverse(raw)
			addr := fmt.Sprintf("%d.%d.%d.%d", raw[0], raw[1], raw[2], raw[3])
			name := addr
			for line := range bytes.Lines(hosts) {
				if f := strings.Fields(string(line)); len(f) > 1 && f[0] == addr && addr != "127.0.0.1" {
					name = f[1]
				}
			}
			say(probe.Finding{Kind: probe.Reach, Name: fmt.Sprintf("%s:%d", name, n), Detail: "at " + addr})
		}
	}
	if o := interfaces(); o.Verdict == Open {
		say(probe.Finding{Kind: probe.Reach, Name: "interfaces", Detail: o.Detail})
	}
	for _, dir := range []string{"/run", "/tmp", "/var/run"} {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeSocket != 0 {
				say(probe.Finding{Kind: probe.Reach, Name: "unix:" + path})
			}
			return nil
		})
	}
}
