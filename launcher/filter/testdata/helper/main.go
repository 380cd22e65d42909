// Command helper confines itself as sharness's helpers do, and reports what it can still do.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/confine"
)

// Input comes on standard input.
type Input struct {
	Drop confine.Drop
	Dir  string // a folder with a file f that Landlock may allow
	Port int    // a TCP port that something listens on
}

func main() {
	var in Input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		fail(err)
	}
	start := time.Now()
	if err := confine.Self(in.Drop); err != nil {
		fail(err)
	}
	fmt.Fprintf(os.Stderr, "confined in %v\n", time.Since(start))
	reply := map[string]string{}
	for name, try := range map[string]func() error{
		"runtime":    useRuntime,
		"descriptor": passDescriptor,
		"seal":       seal,
		"dial":       func() error { return dial(in.Port) },
		"listen":     listen,
		"file":       func() error { return readFile(in.Dir) },
		"watch":      func() error { return watch(in.Dir) },
		"rename":     func() error { return rename(in.Dir) },
		"strip":      func() error { return unix.Fchmodat(unix.AT_FDCWD, in.Dir+"/f", 0o755, 0) },
		"set":        func() error { return unix.Fchmodat(unix.AT_FDCWD, in.Dir+"/f", 0o4755, 0) },
		"fork":       fork,
		"raw socket": func() error { return call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, 1) },
		"vsock":      func() error { return call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
		"kill":       func() error { return call(unix.SYS_KILL, uintptr(os.Getppid()), 0, 0) },
		"ptrace":     func() error { return call(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0) },
		"process":    func() error { return call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_SIGHAND, 0, 0) },
		"seccomp":    func() error { return call(unix.SYS_SECCOMP, 99, 0, 0) },
		"raise":      func() error { return call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 1) },
	} {
		reply[name] = ""
		if err := try(); err != nil {
			reply[name] = err.Error()
			if errno, ok := errors.AsType[syscall.Errno](err); ok {
				reply[name] = errno.Error()
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(reply); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func call(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall6(nr, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func fork() error {
	_, err := syscall.ForkExec("/bin/true", []string{"true"}, nil)
	return err
}

// useRuntime makes threads, garbage, timers, a signal and a recovered fault.
func useRuntime() error {
	done := make(chan bool)
	for range 20 {
		go func() {
			runtime.LockOSThread() // ends with the goroutine: threads are made and destroyed
			kept := make([][]byte, 0, 64)
			for range 64 {
				kept = append(kept, make([]byte, 1<<16))
			}
			runtime.KeepAlive(kept)
			done <- true
		}()
	}
	for range 20 {
		<-done
	}
	runtime.GC()
	select {
	case <-time.After(time.Millisecond):
	case <-done:
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR1); err != nil {
		return fmt.Errorf("tgkill: %w", err)
	}
	<-signals
	return fault()
}

func fault() (err error) {
	defer func() {
		if recover() == nil {
			err = errors.New("want a recovered fault")
		}
	}()
	var p *int
	*p = 1
	return nil
}

// passDescriptor sends a pipe over the socket pair of descriptors 5 and 6 and reads from it through the poller.
func passDescriptor() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(5, []byte("x"), unix.UnixRights(int(r.Fd())), nil, 0); err != nil {
		return err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(6, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return err
	}
	received := os.NewFile(uintptr(fds[0]), "received")
	time.AfterFunc(time.Millisecond, func() { w.Write([]byte("x")) })
	_, err = received.Read(make([]byte, 1))
	return err
}

func seal() error {
	fd, err := unix.MemfdCreate("m", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

func dial(port int) error {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

func listen() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return l.Close()
}

func rename(dir string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, dir+"/f", unix.AT_FDCWD, dir+"/g", unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, dir+"/g", unix.AT_FDCWD, dir+"/f", unix.RENAME_NOREPLACE)
}

func readFile(dir string) error {
	_, err := os.ReadFile(dir + "/f")
	return err
}

func watch(dir string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE)
	return err
}
