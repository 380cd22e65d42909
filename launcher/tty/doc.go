// Package tty stands between the user's terminal and files on one side and a domain on the other. The domain never
// holds the user's terminal, nor a file, pipe, socket or device that the user redirected to: it gets a pty of its own and
// fresh pipes, and this package copies between them without looking at what it copies. From standard input it takes what a
// pipe holds, whether the target reads it or not.
//
//	layout, err := tty.Plan([3]int{0, 1, 2})          // which stream is what
//	streams, err := tty.Open(layout, [3]int{0, 1, 2}) // what the stage gets
//	… start the stage, receive the pty's master, streams.Dress(fd), streams.Started() …
//	proxy := tty.Proxy{Streams: streams, Master: fd, Child: child, Stopped: stopped}
//	err = proxy.Run(exited)                            // returns when all output has arrived
//
// What it promises: the terminal's modes are put back on every way out of Run, panics of its own goroutines and signals
// that can be caught included; what was typed ahead, and the terminal's answers to queries of the domain, do not reach
// the user's shell; output written before the domain's end is on the user's side when Run returns. SIGKILL of the
// process itself, and a fatal error of the Go runtime, leave the terminal as it is: `stty sane` helps.
//
// What it expects of the stage:
//
//   - Pid 1 leads a session with the pty as its controlling terminal. The target has a process group of its own. It is
//     the foreground group if Streams.StartForeground says so. Else pid 1's own group is, so that a target that reads
//     the terminal stops with SIGTTIN and the user's terminal is not read before.
//   - It does not execute the target before Streams.Dress has been called, which must come before the target's own
//     changes of the modes and of what it makes of the size.
//   - Pid 1 waits with WUNTRACED and reports every stop of the target with its signal (Proxy.Stopped), and its end.
//   - Child.Continue(Foreground) makes the target's group the foreground group of the pty, then sends it SIGCONT.
//     Child.Continue(Background) makes pid 1's group the foreground group, then sends SIGCONT. Pid 1 must ignore SIGTTOU
//     for that, and keep a descriptor of the pty.
//   - Child.Signal reaches the target's process group.
//   - No process of the domain outlives the report of the end: the pty and the pipes reach their end only then.
//
// And of the supervisor: its helpers do not share its process group, because a Ctrl-Z stops that whole group; SIGTTIN and
// SIGTTOU keep their default action; nothing else reads the terminal.
package tty
