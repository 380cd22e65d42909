package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/lean"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// server is the privileged half of the bash-server: it accepts, checks who calls, hands the connection to sharness-bashd,
// and builds a sandbox when that asks for one. It reads no byte that a client wrote.
type server struct {
	s      *Session
	sp     *spawner
	set    *protect.Set
	events *sink.Sender
	listen *os.File
	admit  func(peer) error

	replaced *replacements
	again    func(*domain, int) // protects an entry again in a domain that was being started when it was replaced

	netns *os.File // of all commands, when the manifest says network: session

	budget  *budget
	boxes   *sandboxes
	lull    *lean.Lull // nil: memory is kept
	retired retired    // groups of commands that have ended

	mu      sync.Mutex
	changed sync.Cond        // of bashd, open and closed; its lock is mu. Nothing that can wait for a process is done under mu
	bashd   *wire.RecordConn // nil while it is being started again
	nextID  uint64
	nextCmd uint64
	nextBox uint64
	open    map[uint64]*wire.RecordConn // connections, and the bashd that holds each
	sent    map[uint64]int              // of those, the sockets that bashd has not said to have yet
	running map[uint64]*runningCommand
	hinted  map[wire.Hint]time.Time // when each was sent last
	closed  bool
	busy    sync.WaitGroup // the acceptor and the commands
}

// runningCommand is one command between RecStart and RecEnded.
type runningCommand struct {
	mu       sync.Mutex
	dom      *domain
	job      bool        // it may outlive its client
	killed   wire.Reason // why it was killed by us
	dead     bool        // killed before it ran
	exceeded uint64      // limits that pulse ended it for
	ended    bool        // nothing can be told to it any more
	hints    map[wire.Hint]bool
	signals  chan int // on their way to it; closed once it has ended
}

// maxCommands bounds the commands of a session that run at once.
const maxCommands = 128

// maxOpen bounds the connections that bashd has and has not done with. It serves half as many and hangs up on the
// others: more are open only while it does not keep up.
const maxOpen = 256

// roomTime is how long one that comes then waits for room, and those behind it in the backlog.
const roomTime = time.Second

// closeTime bounds the end of the commands that are killed with the session.
const closeTime = 10 * time.Second

// hintPause is how long a hint of one kind is not repeated. A command can make their cause as fast as it likes.
const hintPause = time.Second

// maxSignals is how many signals may be on their way to a command whose pid 1 is slow to take them.
const maxSignals = 64

// peer is who is at the other end of an accepted connection.
type peer struct {
	unix.Ucred
	pidfd int // -1 below kernel 6.5
}

// listenSocket makes the session's socket. Its owner is the one user that may connect.
func listenSocket(path string, uid int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("bash-server socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		f.Close()
		return nil, fmt.Errorf("bash-server socket %s: %w", path, err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Lchown(path, uid, uid), unix.Listen(fd, 128)); err != nil {
		f.Close()
		return nil, fmt.Errorf("bash-server socket %s: %w", path, err)
	}
	return f, nil
}

// accept takes connections until the socket is closed.
func (sv *server) accept() {
	for {
		fd, err := sv.acceptOne()
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			return // closed
		}
		sv.welcome(fd)
	}
}

// acceptOne waits without a thread.
func (sv *server) acceptOne() (fd int, err error) {
	raw, err := sv.listen.SyscallConn()
	if err != nil {
		return -1, err
	}
	rerr := raw.Read(func(s uintptr) bool {
		fd, _, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return -1, rerr
	}
	return fd, err
}

// welcome checks one connection and hands it on. Whoever is not admitted sees a closed connection.
func (sv *server) welcome(fd int) {
	p, err := peerOf(fd)
	if err == nil {
		err = sv.admit(p)
		if p.pidfd >= 0 {
			unix.Close(p.pidfd)
		}
	}
	if err != nil {
		sv.events.Send(event.Event{Type: event.SyscallDenied, Door: "srv-bytes", Layer: "server", Detail: "connection to the bash-server refused: " + err.Error(),
			Process: &event.Process{PID: int(p.Pid), UID: p.Uid}})
		unix.Close(fd)
		return
	}
	sv.serve(fd)
}

// serve gives an admitted connection to bashd, or tells it that there is no room, or closes it when the session ends.
func (sv *server) serve(fd int) {
	if sv.handOver(fd) {
		return
	}
	// Of a client nothing is read; what is written finds an empty buffer. Whoever does not get it sees a closed connection.
	_, _ = unix.SendmsgN(fd, wire.AppendFrame(nil, wire.ErrorFrame(2, "the bash-server is busy: too many connections")), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	unix.Close(fd)
}

// handOver gives a connection to bashd, and says whether that has room for it. Whoever comes while bashd is being started
// again waits, and so do those behind it. The socket is kept until bashd says that it has it: a dying one may close its
// connections long before the control socket, out of which nobody takes then what was sent meanwhile.
func (sv *server) handOver(fd int) bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	late := time.Now().Add(roomTime)
	for {
		if sv.closed {
			unix.Close(fd)
			return true // nobody is there to be told
		}
		if sv.bashd == nil {
			sv.changed.Wait()
			continue
		}
		if len(sv.open) >= maxOpen {
			if !time.Now().Before(late) {
				return false
			}
			wake := time.AfterFunc(time.Until(late), func() {
				sv.mu.Lock() // not between the look at the time and the wait
				defer sv.mu.Unlock()
				sv.changed.Broadcast()
			})
			sv.changed.Wait()
			wake.Stop()
			continue
		}
		sv.nextID++
		err := sv.bashd.Send(wire.Record{Type: wire.RecConn, ID: sv.nextID}, fd)
		if err == nil {
			sv.open[sv.nextID], sv.sent[sv.nextID] = sv.bashd, fd
			return true
		}
		if errors.Is(err, wire.ErrBusy) {
			return false
		}
		sv.bashd = nil // it is dying; its keeper starts another
	}
}

// serveBy makes a bashd that was just started the one that gets the connections.
func (sv *server) serveBy(rc *wire.RecordConn) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.bashd = rc
	sv.changed.Broadcast()
}

// refuse ends what waits and what comes from here on.
func (sv *server) refuse() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.closed = true
	sv.changed.Broadcast()
}

// peerOf asks the kernel who connected. The pidfd pins the process while its cgroup is looked up, so that the number
// cannot mean another one (SO_PEERPIDFD, kernel 6.5).
func peerOf(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{pidfd: -1}, fmt.Errorf("peer credentials: %w", err)
	}
	p := peer{Ucred: *cred, pidfd: -1}
	if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		p.pidfd = n
	}
	return p, nil
}

// admitGroup admits processes of one uid in one cgroup.
func admitGroup(uid int, cg *cgroup) func(peer) error {
	return func(p peer) error {
		if int(p.Uid) != uid {
			return fmt.Errorf("uid %d is not the orchestrator's", p.Uid)
		}
		in, err := cg.contains(int(p.Pid))
		if err != nil {
			return fmt.Errorf("cgroup of pid %d: %w", p.Pid, err)
		}
		if !in {
			return fmt.Errorf("pid %d is not of this session", p.Pid)
		}
		if p.pidfd >= 0 {
			// Still the process that connected: signal 0 through its pidfd.
			if err := unix.PidfdSendSignal(p.pidfd, 0, nil, 0); err != nil {
				return fmt.Errorf("pid %d: %w", p.Pid, err)
			}
		}
		return nil
	}
}

// admitRoot admits root alone: a session without orchestrator serves its host.
func admitRoot(p peer) error {
	if p.Uid != 0 {
		return fmt.Errorf("uid %d is not root", p.Uid)
	}
	return nil
}

// attend serves one bashd to its end. One that breaks the protocol is killed; its keeper starts another, and cannot know
// why.
func (sv *server) attend(rc *wire.RecordConn, p *helperProcess) {
	err := sv.control(rc)
	if errors.Is(err, errHungUp) && p.ends(time.Second) {
		return // its keeper says how
	}
	sv.events.Send(event.Event{Type: event.LayerApplied, Layer: "sharness-bashd", Detail: fmt.Sprintf("sharness-bashd is killed: %v", err)})
	p.signal(unix.SIGKILL)
}

// errHungUp says that bashd closed its control socket: it is about to end, or ought to be.
var errHungUp = errors.New("it closed its control socket")

// control serves the records of one bashd until it is gone. What it holds is closed with it: its connections end, and
// its commands are killed, since nobody would read what they print. Connections that never reached it go to the next.
func (sv *server) control(rc *wire.RecordConn) error {
	defer sv.forget(rc)
	for {
		rec, fds, err := rc.Recv()
		if errors.Is(err, unix.ECONNRESET) {
			continue // it had not read all of ours; what it said last still comes
		}
		if errors.Is(err, io.EOF) {
			return errHungUp
		}
		if err != nil {
			return err
		}
		if err := sv.handle(rc, rec, fds); err != nil {
			return err
		}
	}
}

func (sv *server) forget(rc *wire.RecordConn) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.bashd == rc {
		sv.bashd = nil
	}
	rc.Close()
	// Another bashd may have been started meanwhile, and holds connections of its own.
	for id, holder := range sv.open {
		if holder != rc {
			continue
		}
		delete(sv.open, id)
		if fd, ok := sv.sent[id]; ok {
			delete(sv.sent, id)
			if sv.closed {
				unix.Close(fd)
			} else {
				sv.busy.Go(func() { sv.serve(fd) })
			}
		}
		if c := sv.running[id]; c != nil {
			c.kill(wire.ReasonShutdown)
		}
	}
	sv.changed.Broadcast()
}

// taken closes what was kept of a connection that bashd has.
func (sv *server) taken(id uint64) {
	if fd, ok := sv.sent[id]; ok {
		delete(sv.sent, id)
		unix.Close(fd)
	}
}

// handle acts on one record. bashd is not trusted: every id must be one that it was given and not used already, and check has
// looked at the rest.
func (sv *server) handle(rc *wire.RecordConn, rec wire.Record, fds []int) error {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "bashd")
	}
	taken := false
	defer func() {
		if !taken {
			closeFiles(files)
		}
	}()
	if sv.open[rec.ID] != rc {
		return fmt.Errorf("record %d names connection %d, which bashd does not hold", rec.Type, rec.ID)
	}
	if err := check(rec, files); err != nil {
		return fmt.Errorf("connection %d: %w", rec.ID, err)
	}
	// Whatever it says of a connection, it has it.
	sv.taken(rec.ID)
	c := sv.running[rec.ID]
	switch rec.Type {
	case wire.RecStart:
		if c != nil {
			return fmt.Errorf("connection %d has a command already", rec.ID)
		}
		job := rec.A&wire.FlagJob != 0
		if len(sv.running) >= maxCommands || sv.closed || job && sv.jobs() >= jobsOf(sv.s.Manifest) {
			return rc.Send(wire.Record{Type: wire.RecRefused, ID: rec.ID, A: uint64(wire.ReasonBusy)})
		}
		c = &runningCommand{job: job, hints: map[wire.Hint]bool{}, signals: make(chan int, maxSignals)}
		sv.running[rec.ID] = c
		if sv.lull != nil {
			sv.lull.End()
		}
		sv.busy.Add(1)
		taken = true
		sv.nextCmd++
		go sv.run(rc, rec, sv.nextCmd, c, files)
	case wire.RecSignal:
		if c != nil {
			c.signal(int(rec.A))
		}
	case wire.RecKill:
		switch why := wire.Reason(rec.A); {
		case c == nil:
		case why == wire.ReasonStopped:
			c.stop(why)
		default:
			c.kill(why)
		}
	case wire.RecDone:
		if c != nil {
			c.kill(wire.ReasonClientGone)
		}
		delete(sv.open, rec.ID)
		sv.changed.Broadcast()
	}
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// run is the life of one command.
func (sv *server) run(rc *wire.RecordConn, rec wire.Record, number uint64, c *runningCommand, files []*os.File) {
	defer sv.busy.Done()
	defer func() {
		sv.mu.Lock()
		delete(sv.running, rec.ID)
		if len(sv.running) == 0 && sv.lull != nil {
			sv.lull.Begin()
		}
		sv.mu.Unlock()
	}()
	mark := sv.replaced.now()
	// bashd is told before the target runs: it makes itself ready meanwhile, and not when the first output waits. That of a job
	// lets its client go, which ought to hear of a folder outside.
	started := func(sb *sandbox) error {
		r := wire.Record{Type: wire.RecStarted, ID: rec.ID, A: number}
		if sb.master != nil {
			return rc.Send(r, int(sb.master.Fd()))
		}
		return rc.Send(r)
	}
	first := started
	if c.job {
		first = func(*sandbox) error { return nil }
	}
	dom, err := sv.start(files, rec.B, first)
	closeFiles(files)
	if err != nil {
		sv.events.Send(event.Event{Type: event.StartRefused, Command: &event.Command{ID: number}, Detail: "sandbox: " + err.Error()})
		reason := wire.ReasonInternal
		switch {
		case errors.Is(err, errCwd):
			reason = wire.ReasonCwd
		case errors.Is(err, errNoSlot):
			reason = wire.ReasonBusy
		}
		_ = rc.Send(wire.Record{Type: wire.RecRefused, ID: rec.ID, A: uint64(reason)})
		return
	}
	if c.job {
		err = started(dom)
	}
	c.adopt(dom.domain)
	before, held := sv.meter(dom.cgroup), openSpaces(dom.pid)
	defer held.close()
	for _, i := range sv.replaced.since(mark) {
		sv.again(dom.domain, i)
	}
	if err != nil {
		c.kill(wire.ReasonShutdown)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for sig := range c.signals {
			dom.signal(sig)
		}
	}()
	sv.boxes.fill()
	began := time.Now()
	x := sv.watch(dom.domain, c, sv.timeFor(rec.A))
	if x.left && !c.job {
		sv.tellLeft(rc, rec.ID)
	}
	c.end()
	<-told // a signal that waits for pid 1 goes with it
	sv.measure(dom.domain, began, rec.A)
	end := wire.Record{Type: wire.RecEnded, ID: rec.ID, B: uint64(x.status), C: sv.limits(dom.domain, c, x, before, held)}
	if x.signal != 0 {
		end.A, end.B = 1, uint64(x.signal)
	}
	if !x.told {
		<-dom.reaped // the kernel ends what is left in the namespace, pid 1 last
	}
	_ = rc.Send(end)
	if err := sv.boxes.end(dom); err != nil {
		sv.events.Send(event.Event{Type: event.CommandEnd, Command: &event.Command{ID: number}, Detail: "teardown: " + err.Error()})
	}
}

// takeSlot gives a sandbox a number for its group, and an id that no other has.
func (sv *server) takeSlot() (number uint64, slot, uid int, ok bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if slot, ok = sv.s.slots.take(); ok {
		sv.nextBox++
	}
	return sv.nextBox, slot, slotUID(sv.s.UID, slot), ok
}

// trim gives back what only many commands at once need.
func (sv *server) trim() {
	sv.retired.trim()
	sv.boxes.nets.trim()
}

func (sv *server) freeSlot(slot int) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.s.slots.free(slot)
}

// stagePids is what pid 1 of a sandbox takes of the pids limit, so that the manifest's number is the command's own.
const stagePids = 1

// maxTries bounds the sandboxes that one command may find ended before it has begun.
const maxTries = 3

// start runs a command in a sandbox. first is called when there is one that is about to run it; its error ends what runs.
func (sv *server) start(files []*os.File, size uint64, first func(*sandbox) error) (*sandbox, error) {
	var dress func(master int) error
	if len(files) == 1 {
		dress = func(master int) error {
			// Rows and columns of the client's terminal; a command may ask for them at once.
			return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size), Col: uint16(size >> 16)})
		}
	}
	for try := 1; ; try++ {
		sb, err := sv.boxes.take(dress)
		if err != nil {
			return nil, err
		}
		if try == 1 {
			err = first(sb)
		}
		if err == nil {
			err = sv.boxes.run(sb, files)
		}
		if err == nil {
			return sb, nil
		}
		if err = errors.Join(err, sv.boxes.end(sb)); try == maxTries || dress != nil || !sv.boxes.retry(sb, err) {
			return nil, asCwd(err)
		}
	}
}

// watch waits for the end of a command, and ends it when its time is over. A command that is stopped stays so until it
// is continued, killed or out of time.
func (sv *server) watch(dom *domain, c *runningCommand, t manifest.Timeout) exit {
	if t != manifest.TimeoutNone {
		timer := time.AfterFunc(time.Duration(t), func() { c.stop(wire.ReasonTimeout) })
		defer timer.Stop()
	}
	for {
		if x := dom.next(); x.stopped == 0 {
			return x
		}
	}
}

func (c *runningCommand) adopt(dom *domain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dom = dom
	if c.dead {
		dom.kill()
	}
}

// end says that the target has ended, and ends what is left with it.
func (c *runningCommand) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.signals)
	c.dom.kill()
}

func (c *runningCommand) kill(why wire.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed == wire.ReasonNone {
		c.killed = why
	}
	c.dead = true
	if c.dom != nil {
		c.dom.kill()
	}
}

func (c *runningCommand) reason() wire.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// domains are those of the commands that run.
func (sv *server) domains() []*domain {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	var out []*domain
	for _, c := range sv.running {
		c.mu.Lock()
		if c.dom != nil && !c.dead {
			out = append(out, c.dom)
		}
		c.mu.Unlock()
	}
	return out
}

func (c *runningCommand) signal(sig int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	select {
	case c.signals <- sig:
	default: // as if it were pending already
	}
}

// hint says whether the command runs and has not been told h.
func (c *runningCommand) hint(h wire.Hint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dom == nil || c.ended || c.hints[h] {
		return false
	}
	c.hints[h] = true
	return true
}

// close ends the server: no new connection, no command left.
func (sv *server) close() error {
	sv.refuse()
	sv.mu.Lock()
	for _, c := range sv.running {
		c.kill(wire.ReasonShutdown)
	}
	sv.mu.Unlock()
	sv.listen.Close() // the acceptor ends
	ended := make(chan struct{})
	go func() {
		sv.busy.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTime):
		// A process that cannot be killed sits in the kernel, say in a file system that does not answer.
		return fmt.Errorf("bash-server: commands did not end within %s of being killed", closeTime)
	}
	if sv.boxes != nil {
		sv.boxes.close()
	}
	if sv.netns != nil {
		sv.netns.Close()
	}
	return nil
}

// hint tells bashd what something that was just refused in a view means. Which command it was is not known: it goes to
// all that run, to each once, and bashd shows it to those that fail.
func (sv *server) hint(h wire.Hint) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	if now.Sub(sv.hinted[h]) < hintPause {
		return
	}
	sv.hinted[h] = now
	for id, c := range sv.running {
		if rc := sv.open[id]; rc != nil && c.hint(h) {
			_ = rc.Send(wire.Record{Type: wire.RecHint, ID: id, A: uint64(h)}) // may be dropped
		}
	}
}
