package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/kerneltest"
	"golang.org/x/sys/unix"
)

// domainID is the uid and gid of every domain here: far above those that sessions allocate, and not that of another run
// of these tests.
var domainID = uint32(1900080000 + os.Getpid()%9000)

// patience bounds every wait: what takes longer has hung.
const patience = 10 * time.Second

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]kerneltest.Func{"supervisor": supervisorChild})
}

// program finds one that make build leaves in bin.
func program(name string) (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", errors.Join(err, errors.New("run: make build"))
	}
	return path, nil
}

// world is a plan that works, and the descriptors that it names.
type world struct {
	plan  *Plan
	files []*os.File
}

// pass gives a file a number in the stage.
func (w *world) pass(f *os.File) int {
	w.files = append(w.files, f)
	return FirstFD + len(w.files) - 1
}

func (w *world) close() {
	for _, f := range w.files {
		f.Close()
	}
	w.files = nil
}

// bind adds a tree or a file of the host.
func (w *world) bind(path, target string, set, clear uint64) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	fi, err := os.Stat(path)
	if err == nil {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: set, Attr_clr: clear})
	}
	if err != nil {
		f.Close()
		return err
	}
	w.plan.Mounts = append(w.plan.Mounts, Mount{Target: target, FD: w.pass(f), IsFile: !fi.IsDir()})
	return nil
}

// newWorld makes a small view of the host's /usr, and a plan that runs argv in it with every layer on.
func newWorld(argv ...string) (*world, error) {
	abi, err := confine.LandlockABI()
	if err != nil {
		return nil, err
	}
	abi = min(abi, confine.MaxLandlockABI)
	const nosuid = unix.MOUNT_ATTR_NOSUID
	w := &world{plan: &Plan{
		Hostname: "stage-test", UID: domainID, GID: domainID,
		Files:    []File{{Path: "/etc/hosts", Content: []byte("127.0.0.1 localhost\n"), Mode: 0o644}},
		Links:    []Link{{"/bin", "usr/bin"}, {"/lib", "usr/lib"}, {"/lib64", "usr/lib64"}, {"/dev/ptmx", "pts/ptmx"}},
		ReadProc: []string{"/proc/sys"}, MaskProc: []string{"/proc/kcore", "/proc/no-such-file"},
		Outer: confine.Landlock{ABI: abi, Scoped: true},
		Landlock: confine.Landlock{ABI: abi, FS: true, Net: abi >= 4, Scoped: abi >= 6, Paths: []confine.PathRule{
			{Path: "/", Access: unix.LANDLOCK_ACCESS_FS_READ_DIR}, {Path: "/usr", Access: confine.AccessRead | confine.AccessExecute},
			{Path: "/proc", Access: confine.AccessRead}, {Path: "/dev", Access: confine.AccessRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | confine.AccessIoctl},
			{Path: "/tmp", Access: confine.AccessRead | confine.AccessWrite}, {Path: "/etc", Access: confine.AccessRead}}},
		Seccomp: [][]byte{allowAll()},
		Rlimits: []Rlimit{{Resource: unix.RLIMIT_CORE, Soft: 1, Hard: 1}},
		Path:    argv[0], Argv: argv, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Cwd: "/tmp", CwdBelow: []string{"/tmp"},
		Stdio: [3]int{StdioNull, StdioNull, StdioNull},
	}}
	if err := errors.Join(w.bind("/usr", "/usr", unix.MOUNT_ATTR_RDONLY|nosuid, 0), w.bind("/dev/null", "/dev/null", nosuid, unix.MOUNT_ATTR_NODEV),
		w.bind("/dev/tty", "/dev/tty", nosuid, unix.MOUNT_ATTR_NODEV)); err != nil {
		w.close()
		return nil, err
	}
	if abi < 6 {
		w.plan.Outer = confine.Landlock{} // as the launcher does where there are no scopes
	}
	w.plan.Mounts = append(w.plan.Mounts,
		Mount{Target: "/proc", Fstype: "proc", Set: nosuid},
		Mount{Target: "/tmp", Fstype: "tmpfs", Data: "size=1m,mode=1777", Set: nosuid},
		Mount{Target: "/dev/pts", Fstype: "devpts", Data: "newinstance,ptmxmode=0666,mode=0620", Set: nosuid})
	return w, nil
}

// allowAll is a filter that allows everything: the other layers have to hold without it.
func allowAll() []byte {
	const ret, allow = 0x06, 0x7fff0000 // BPF_RET|BPF_K, SECCOMP_RET_ALLOW
	return []byte{ret, 0, 0, 0, byte(allow & 0xff), byte(allow >> 8 & 0xff), byte(allow >> 16 & 0xff), byte(allow >> 24)}
}

// running is a stage that was started; status is the supervisor's end of its socket.
type running struct {
	pid    int
	status int
	stderr *os.File
}

// start starts the stage, as the launcher does. The calling thread must outlive it when pdeathsig is set.
func (w *world) start(status, theirs int, pdeathsig syscall.Signal, planData []byte) (*running, error) {
	defer w.close()
	path, err := program("sharness-init")
	if err != nil {
		return nil, err
	}
	if planData == nil {
		if planData, err = json.Marshal(w.plan); err != nil {
			return nil, err
		}
	}
	planFD, err := SealedMemfd("plan", planData)
	if err != nil {
		return nil, err
	}
	defer unix.Close(planFD)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	r, stderr, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	files := []uintptr{null.Fd(), null.Fd(), stderr.Fd(), uintptr(planFD), uintptr(theirs)}
	for _, f := range w.files {
		files = append(files, f.Fd())
	}
	pid, err := syscall.ForkExec(path, []string{"sharness-init"}, &syscall.ProcAttr{Env: []string{}, Files: files, Dir: "/", Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET, Pdeathsig: pdeathsig,
	}})
	if err != nil {
		r.Close()
		return nil, err
	}
	return &running{pid: pid, status: status, stderr: r}, nil
}

// domain is a world that was started by a test, and ends with it at the latest.
type domain struct {
	*running
	t      *testing.T
	reaped chan syscall.WaitStatus
	ended  *syscall.WaitStatus
	master *os.File // the terminal's; closed, it would hang up on pid 1
}

func launch(t *testing.T, w *world) *domain { return launchRaw(t, w, nil) }

func launchRaw(t *testing.T, w *world, planData []byte) *domain {
	t.Helper()
	ours, theirs, err := statusPair()
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.start(ours, theirs, 0, planData)
	unix.Close(theirs)
	if err != nil {
		t.Fatal(err)
	}
	d := &domain{running: r, t: t, reaped: make(chan syscall.WaitStatus, 1)}
	go func() {
		var ws syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(r.pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		d.reaped <- ws
	}()
	t.Cleanup(func() {
		if d.ended == nil {
			unix.Kill(r.pid, unix.SIGKILL)
			d.wait()
		}
		unix.Close(r.status)
		r.stderr.Close()
	})
	// A stage that hangs fails the test that waits for its word.
	if err := unix.SetsockoptTimeval(ours, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience / time.Second)}); err != nil {
		t.Fatal(err)
	}
	return d
}

func statusPair() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], err
}

// wait waits until pid 1 was reaped.
func (d *domain) wait() syscall.WaitStatus {
	d.t.Helper()
	if d.ended != nil {
		return *d.ended
	}
	select {
	case ws := <-d.reaped:
		d.ended = &ws
		return ws
	case <-time.After(patience):
		d.t.Fatal("pid 1 does not end")
		panic("unreachable")
	}
}

// next is the next message, which must be of the type.
func (d *domain) next(want MessageType) Message {
	d.t.Helper()
	m, fd, err := Receive(d.status)
	if fd >= 0 {
		d.master = os.NewFile(uintptr(fd), "master")
		d.t.Cleanup(func() { d.master.Close() })
	}
	if err != nil || m.Type != want {
		unix.Kill(d.pid, unix.SIGKILL)
		d.wait()
		words, _ := io.ReadAll(d.stderr)
		d.t.Fatalf("want message %d, got %+v, %v %s", want, m, err, words)
	}
	return m
}

func (d *domain) tell(m Message) {
	d.t.Helper()
	if err := Send(d.status, m, -1); err != nil {
		d.t.Fatal(err)
	}
}

// mustWorld is newWorld for a test, which needs root and leaves nothing.
func mustWorld(t *testing.T, argv ...string) *world {
	t.Helper()
	kerneltest.RequireRoot(t)
	kerneltest.RequireLandlock(t, 1)
	nothingLeft(t)
	w, err := newWorld(argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// nothingLeft looks for processes of the domain's id when the test has ended, and for its mounts in the host's namespace.
func nothingLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if left = processes(t, domainID); len(left) == 0 {
				break
			}
		}
		for _, p := range left {
			t.Errorf("left behind: process %s", p)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, "nr_inodes=65536") || strings.Contains(line, " /tmp ") && strings.Contains(line, "size=1024k") {
				t.Errorf("left behind: mount %s", line)
			}
		}
	})
}

// processes with the id, zombies included.
func processes(t *testing.T, id uint32) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			continue // ended meanwhile
		}
		if f := statusFields(string(data)); strings.HasPrefix(f["Uid"], itoa(int(id))+" ") {
			found = append(found, f["Pid"]+" "+f["Name"])
		}
	}
	return found
}

// output makes a pipe the target's stdout and stderr and returns its reading end.
func (w *world) output(t *testing.T) *os.File {
	t.Helper()
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	w.plan.Stdio[1], w.plan.Stdio[2] = w.pass(out), w.pass(dup(t, out))
	return r
}

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// run runs the world to its end and returns what it printed.
func run(t *testing.T, w *world) string {
	t.Helper()
	r := w.output(t)
	d := launch(t, w)
	d.next(MsgRunning)
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if m := d.next(MsgExited); m.A != 0 || m.B != 0 {
		t.Errorf("want the target to exit with 0, got %+v\n%s", m, out)
	}
	d.wait()
	return string(out)
}

// statusFields reads /proc/PID/status.
func statusFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

// children are the pids whose parent is pid, as this process sees them.
func children(t *testing.T, pid int) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			continue // ended meanwhile
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if string(fields[1]) == itoa(pid) {
			var n int
			if err := json.Unmarshal([]byte(filepath.Base(filepath.Dir(p))), &n); err != nil {
				t.Fatal(err)
			}
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found
}
