package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Opened is a sink and its descriptor, which the caller closes once the collecting process has it.
type Opened struct {
	Spec Spec
	File *os.File
}

// IDs are a user's ids for opening the files that the user named.
type IDs struct {
	UID, GID int
	Groups   []int
}

// Mode of a log: its owner and a group, because denied attempts name files and commands.
const logMode = 0o640

// Open opens the sink before anything is confined. A File is created when it is not there and only ever appended to;
// it is opened with the ids of user (nil: our own), because a path that a user names must not be followed with more
// reach than the user has. A terminal is a copy of stderr.
func Open(s Spec, user *IDs) (Opened, error) {
	var fd int
	var err error
	switch s.Kind {
	case Terminal:
		fd, err = unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	case Journald:
		fd, err = dial("/run/systemd/journal/socket")
	case Syslog:
		fd, err = dial("/dev/log")
	case File:
		err = As(user, func() error { fd, err = openLog(s.Path); return err })
	default:
		err = fmt.Errorf("unknown kind %q", s.Kind)
	}
	if err != nil {
		return Opened{}, fmt.Errorf("events: open %s: %w", s, err)
	}
	o := Opened{Spec: s, File: os.NewFile(uintptr(fd), s.String())}
	o.EndLine()
	return o, nil
}

// EndLine ends the last line of a File that somebody was killed in the middle of: SIGKILL stops a write(2) between two
// pages of the file, and what came next would stand in that line and be lost with it. It is done by who may read the
// file, which the collecting process may not. What cannot be read or written stays: then the writer's own lines fail too.
func (o Opened) EndLine() {
	if o.Spec.Kind != File {
		return
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", o.File.Fd()))
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
		_, _ = o.File.Write([]byte{'\n'})
	}
}

// openLog opens a regular file for appending. O_NONBLOCK keeps a FIFO from holding us until somebody reads it, and a
// symbolic link in the last place is refused, because log folders get written by several.
func openLog(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, logMode)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("%s is not a regular file", filepath.Base(path))
	}
	return fd, nil
}

func dial(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("connect %s: %w", path, err)
	}
	// A journal entry of ours is at most a few times event.MaxBytes.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	return fd, nil
}

// As runs do with the file access of user on a thread that is thrown away afterwards: filesystem ids and groups belong
// to the thread (credentials(7)), and one that could not get back to its own must not go on. From fsuid 0 to another
// the kernel takes CAP_DAC_* and CAP_FOWNER out of the effective set by itself (capabilities(7)).
func As(user *IDs, do func() error) error {
	if user == nil || user.UID == os.Geteuid() {
		return do()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		done <- func() error {
			groups := make([]uint32, len(user.Groups)+1)
			for i, g := range user.Groups {
				groups[i] = uint32(g)
			}
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(user.Groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
				return fmt.Errorf("setgroups: %w", errno)
			}
			if err := setfs(unix.Setfsgid, unix.SetfsgidRetGid, user.GID); err != nil {
				return fmt.Errorf("setfsgid %d: %w", user.GID, err)
			}
			if err := setfs(unix.Setfsuid, unix.SetfsuidRetUid, user.UID); err != nil {
				return fmt.Errorf("setfsuid %d: %w", user.UID, err)
			}
			return do()
		}()
	}()
	return <-done
}

// setfs sets an id and reads it back: the call itself never fails visibly (setfsuid(2)).
func setfs(set func(int) error, get func(int) (int, error), id int) error {
	if err := set(id); err != nil {
		return err
	}
	if got, _ := get(-1); got != id {
		return unix.EPERM
	}
	return nil
}
