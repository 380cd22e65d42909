package tty

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// IsTerminal tells whether a descriptor is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// Terminal is the user's terminal, through an open file description of its own: the one on descriptors 0-2 is shared
// with the user's shell, and making it non-blocking would break the shell.
type Terminal struct {
	file *os.File
	fd   int // of file; os.File.Fd would make it blocking

	mu    sync.Mutex
	raw   bool
	saved unix.Termios // what Restore puts back
	ours  unix.Termios // what Raw has set
}

// OpenTerminal opens the terminal that fd is. fd stays the caller's.
func OpenTerminal(fd int) (*Terminal, error) {
	if !IsTerminal(fd) {
		return nil, fmt.Errorf("terminal: descriptor %d: %w", fd, unix.ENOTTY)
	}
	// Through /proc, because the terminal may have no name in this mount namespace. O_NOCTTY: it must not become ours.
	own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("terminal: open descriptor %d again: %w", fd, err)
	}
	return &Terminal{file: os.NewFile(uintptr(own), "terminal"), fd: own}, nil
}

// Close restores the terminal and closes the description.
func (t *Terminal) Close() error {
	err := t.Restore()
	if cerr := t.file.Close(); err == nil {
		err = cerr
	}
	return err
}

// Foreground tells whether this process may use the terminal now (tcgetpgrp(3)). A terminal that does not control this
// process is always usable: job control does not apply to it.
func (t *Terminal) Foreground() bool {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err != nil || pgrp == unix.Getpgrp()
}

// Mode is how far Raw goes.
type Mode int

// RawInput leaves the processing of output on, for other writers of the terminal such as the rest of a pipeline.
const (
	RawAll Mode = iota
	RawInput
)

// Raw lets every byte through, as cfmakeraw(3) does. What it changes is what Restore puts back. Called again, it renews
// the modes: a shell that ran in between has set its own. The process must be in the foreground.
func (t *Terminal) Raw(mode Mode) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("terminal: get modes: %w", err)
	}
	if !t.raw || *now != t.ours {
		t.saved = *now
	}
	ours := *now
	ours.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	ours.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	ours.Cflag = ours.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	if mode == RawAll {
		ours.Oflag &^= unix.OPOST
	}
	ours.Cc[unix.VMIN], ours.Cc[unix.VTIME] = 1, 0
	// TCSETS and not TCSETSF: what was typed ahead is for the program that starts.
	if err := unix.IoctlSetTermios(t.fd, unix.TCSETS, &ours); err != nil {
		return fmt.Errorf("terminal: set raw mode: %w", err)
	}
	t.raw, t.ours = true, ours
	return nil
}

// Restore puts back what Raw found, and throws away input that nobody has read (TCSAFLUSH): answers of the terminal to
// a query of the domain would otherwise be typed into the user's shell. Without a Raw before it does nothing. In the
// background it leaves the terminal alone: the shell has set it for itself.
func (t *Terminal) Restore() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.raw {
		return nil
	}
	t.raw = false
	if !t.Foreground() {
		return nil
	}
	if err := unix.IoctlSetTermios(t.fd, unix.TCSETSF, &t.saved); err != nil {
		return fmt.Errorf("terminal: restore modes: %w", err)
	}
	return nil
}

// RestoreOnPanic is deferred by goroutines: a panic in one ends the process before any other could restore.
func (t *Terminal) RestoreOnPanic() {
	if v := recover(); v != nil {
		if t != nil {
			t.Restore()
		}
		panic(v)
	}
}

// dress sets the modes of a pty by its master, which sets those of the other side (tty_ioctl(4)).
func (t *Terminal) dress(master int) error {
	modes, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("terminal: get modes: %w", err)
	}
	if err := unix.IoctlSetTermios(master, unix.TCSETS, modes); err != nil {
		return fmt.Errorf("terminal: set modes of the pty: %w", err)
	}
	return t.resize(master)
}

// resize gives the pty the terminal's size. The kernel sends SIGWINCH to the pty's foreground group if it changed.
func (t *Terminal) resize(master int) error {
	size, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
	if err != nil {
		return fmt.Errorf("terminal: get size: %w", err)
	}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size); err != nil {
		return fmt.Errorf("terminal: set size of the pty: %w", err)
	}
	return nil
}
