package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/stage"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// Paths inside every view.
const (
	viewClient  = "/run/sharness/bin/sharness-bash"
	viewSocket  = "/run/sharness/bash.sock"
	viewHome    = "/home/agent" // HOME of a command
	viewBash    = "/usr/bin/bash"
	viewOwn     = "/run/sharness/own" // all private folders of a command, out of its sight (MaskProc)
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/sharness/bin"
)

// view collects what one domain sees: mounts in order, generated files, and the Landlock rules that go with them. It
// owns the descriptors until the stage has been started.
type view struct {
	mounts []stage.Mount
	files  []stage.File
	links  []stage.Link
	rules  []confine.PathRule
	fds    []*os.File

	queried bool // a name server is there: a session that learns tells what it is asked for
}

// close lets go of what was not attached.
func (v *view) close() {
	for _, f := range v.fds {
		f.Close()
	}
}

// pass gives a file a descriptor in the stage and returns its number there.
func (v *view) pass(f *os.File) int {
	v.fds = append(v.fds, f)
	return stage.FirstFD + len(v.fds) - 1
}

// attach adds a detached mount at a path.
func (v *view) attach(f *os.File, target string, isFile bool) {
	v.mounts = append(v.mounts, stage.Mount{Target: target, FD: v.pass(f), IsFile: isFile})
}

// file is the descriptor of a mount.
func (v *view) file(m stage.Mount) *os.File { return v.fds[m.FD-stage.FirstFD] }

func (v *view) allow(path string, access uint64) {
	v.rules = append(v.rules, confine.PathRule{Path: path, Access: access})
}

// tree adds a tree of the host at its own path, with all that is mounted below it. A link stays a link, and what it
// names is added when it lies nowhere else in the view.
func (v *view) tree(path string, attr, access uint64) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	if fi.Mode()&os.ModeSymlink != 0 {
		return v.link(path)
	}
	m, err := cloneMount(path, clone{set: attr, recursive: true})
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	v.attach(m, path, !fi.IsDir())
	if access != 0 {
		v.allow(path, access)
	}
	return nil
}

// link repeats a symbolic link of the host.
func (v *view) link(path string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	v.links = append(v.links, stage.Link{Path: path, Target: target})
	return nil
}

// rootLinks are the names in / that merged distributions link into /usr.
var rootLinks = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// trees adds the system trees of a view, and the links beside /usr that merged distributions keep in /.
func (v *view) trees(paths []string, attr, access uint64) error {
	paths = slices.Clone(paths)
	slices.Sort(paths)
	for _, p := range rootLinks {
		if _, err := os.Lstat(p); err == nil && slices.Contains(paths, "/usr") && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	for _, p := range paths {
		if _, err := os.Lstat(p); errors.Is(err, os.ErrNotExist) {
			continue // a tree that the host does not have shows nothing
		}
		if err := v.tree(p, attr, access); err != nil {
			return err
		}
	}
	return nil
}

// etcNames is what both views show of /etc beside the generated files: what the C library, TLS and terminals need, and
// the links that programs of /usr go through. Nothing that names users, hosts or services of this machine.
var etcNames = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "default/locale", "fonts",
	"gai.conf", "host.conf", "inputrc", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
	"locale.alias", "locale.conf", "locale.gen", "localtime", "magic", "magic.mime", "mime.types", "nanorc", "os-release",
	"perl", "pki", "profile", "protocols", "python3", "python3.11", "python3.12", "python3.13", "redhat-release",
	"services", "shells", "ssl", "terminfo", "timezone", "vim", "xattr.conf",
}

// etc adds those of etcNames that the host has.
func (v *view) etc() error {
	for _, name := range etcNames {
		path := "/etc/" + name
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := v.tree(path, attrSystem, 0); err != nil {
			return err
		}
	}
	v.allow("/etc", accessRead)
	return nil
}

// identity adds the generated files that say who and where the domain is.
func (v *view) identity(id ids, home, shell string, hosts []hostEntry) {
	add := func(path, content string) {
		v.files = append(v.files, stage.File{Path: path, Content: []byte(content), Mode: 0o644})
	}
	add("/etc/passwd", fmt.Sprintf("root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:%d:%d:agent:%s:%s\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", id.uid, id.gid, home, shell))
	add("/etc/group", fmt.Sprintf("root:x:0:\ntty:x:5:\nagent:x:%d:\nnogroup:x:65534:\n", id.gid))
	names, resolver := "files", "# no resolver: what may be reached is in /etc/hosts\n"
	if v.queried {
		names, resolver = "files dns", "# learn: what is looked up is told, and known to nobody\nnameserver 127.0.0.1\noptions timeout:2 attempts:2\n"
	}
	add("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: "+names+"\nservices: files\nprotocols: files\n")
	add("/etc/resolv.conf", resolver)
	add("/etc/hostname", viewHostname+"\n")
	var b strings.Builder
	fmt.Fprintf(&b, "127.0.0.1 localhost %s\n::1 localhost\n", viewHostname)
	for _, h := range hosts {
		fmt.Fprintf(&b, "%s %s\n", h.addr, h.name)
	}
	add("/etc/hosts", b.String())
}

// viewHostname is the name of every domain's uts namespace.
const viewHostname = "sharness"

type hostEntry struct{ addr, name string }

// devices adds /proc and a minimal /dev with a devpts of its own. /dev is a folder of the root tmpfs, which is nodev and
// read-only in the end; the device nodes are binds with attributes of their own.
func (v *view) devices(shm stage.Mount) error {
	v.mounts = append(v.mounts, stage.Mount{Target: "/proc", Fstype: "proc", Set: attrData})
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		m, err := cloneMount("/dev/"+name, clone{set: attrDevice, clear: unix.MOUNT_ATTR_NODEV})
		if err != nil {
			return fmt.Errorf("view: %w", err)
		}
		v.attach(m, "/dev/"+name, true)
	}
	v.mounts = append(v.mounts,
		stage.Mount{Target: "/dev/pts", Fstype: "devpts", Data: devptsData, Set: attrDevice},
		shm)
	v.links = append(v.links,
		stage.Link{Path: "/dev/ptmx", Target: "pts/ptmx"},
		stage.Link{Path: "/dev/fd", Target: "/proc/self/fd"},
		stage.Link{Path: "/dev/stdin", Target: "/proc/self/fd/0"},
		stage.Link{Path: "/dev/stdout", Target: "/proc/self/fd/1"},
		stage.Link{Path: "/dev/stderr", Target: "/proc/self/fd/2"})
	v.allow("/dev", accessRead|accessDevice)
	v.allow("/dev/shm", accessWrite)
	v.allow("/proc", accessRead)
	return nil
}

// devptsData bounds the terminals of one instance: what they take comes out of kernel.pty.max, one number for the whole host.
// tmux and test suites have a dozen.
const devptsData = "newinstance,ptmxmode=0666,mode=0620,max=64"

// maskedProc and, for the orchestrator, readOnlyProc are what of /proc reaches beyond the namespaces: the list of the OCI runtimes, and
// sysrq-trigger and the sysctls read-only.
var (
	maskedProc = []string{
		"/proc/acpi/", "/proc/asound/", "/proc/config.gz", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/key-users",
		"/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/modules", "/proc/sched_debug",
		"/proc/scsi/", "/proc/slabinfo", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/vmallocinfo", "/sys/",
	}
	readOnlyProc = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/tty", "/proc/driver"}
)

// tmpfs is a private one.
func tmpfs(target string, size manifest.Size, mode uint32, attr uint64) stage.Mount {
	return stage.Mount{Target: target, Fstype: "tmpfs", Data: fmt.Sprintf("size=%d,mode=%04o", size, mode), Set: attr}
}

// private adds a folder of the domain's own. Its Landlock rule reaches what is mounted below it too: where that is a
// folder which the user or the other side sees, the rule must not grant sockets and FIFOs.
func (v *view) private(s *Session, m stage.Mount, access uint64) {
	v.mounts = append(v.mounts, m)
	own := []string{s.Workspace.Name()}
	if s.State != nil {
		own = append(own, s.State.Name())
	}
	if slices.ContainsFunc(own, func(p string) bool { return below(p, m.Target) }) {
		access &^= accessWrite &^ accessShared
	}
	v.allow(m.Target, access)
}

// bind binds a path of the view onto itself with other attributes.
func (v *view) bind(path string, set uint64, isFile bool) {
	v.mounts = append(v.mounts, stage.Mount{Target: path, Bind: path, Set: set, IsFile: isFile})
}

// below says whether path is dir or lies beneath it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
}
