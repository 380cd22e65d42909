package bashserver

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
)

// conn is one client from connect to the last byte.
type conn struct {
	s       *Server
	id      uint64
	peer    int32 // pid
	uid     uint32
	asked   *event.Target // what is to be run, and what may be said of it, once that is known
	logged  map[string]any
	frames  *wire.FrameConn
	json    bool               // it wants one object
	out     *clientFD          // where that goes, of a refusal that came when the descriptors had been taken
	records chan message       // of the supervisor, for this connection; hints are not among them
	hints   map[wire.Hint]bool // what it said may be why the command fails; under s.mu
	signals chan int           // of the client
	ending  chan struct{}      // closed when the command has ended: from then on signals only stop the copying
	quit    chan struct{}      // closed by cancel when the client is gone
	cancel  func()
	busy    sync.WaitGroup // goroutines of this connection
}

// maxRecords is more than a supervisor says of one connection: RecStarted and RecEnded, or RecRefused.
const maxRecords = 4

type message struct {
	wire.Record
	fds []int
}

// answerTime is how long a client may take to read its one answer.
const answerTime = 5 * time.Second

func (c *conn) serve() {
	defer func() {
		c.frames.Close()
		c.s.ctl.Send(wire.Record{Type: wire.RecDone, ID: c.id}) // fails only when the session is over
		c.busy.Wait()
		c.s.forget(c)
	}()
	answer, err := c.command()
	if errors.Is(err, wire.ErrProtocol) {
		err = denial{&refusal{statusNotRun, err.Error()}}
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		err = denial{&refusal{statusNotRun, fmt.Sprintf("the request took longer than %v", c.s.cfg.RequestTimeout)}}
	}
	var no *refusal
	switch {
	case err == errAnswered:
		return
	case err == nil:
	case errors.As(err, &no):
		c.reportRefusal(err, no)
		text := c.s.secrets.String(no.text, false)
		if c.json {
			c.tellRefusal(no.status, text)
		}
		answer = wire.ErrorFrame(no.status, text)
	default: // the client is gone
		return
	}
	c.frames.Conn.SetWriteDeadline(time.Now().Add(answerTime))
	c.frames.WriteFrame(answer)
}

// command reads a request and runs it, and returns the frame that says how it ended.
func (c *conn) command() (answer wire.Frame, err error) {
	q, size, err := c.request()
	defer func() { c.s.pending.Add(int64(-size)) }()
	if err != nil {
		return wire.Frame{}, err
	}
	c.asked = &event.Target{Asked: cut(c.s.secrets.String(q.Execfn, false)), Source: "request"}
	p, err := c.s.cfg.program(q)
	c.json = p.json
	if errors.Is(err, errNotRouted) {
		// Secrets first: quoted or cut, one may not be known for what it is.
		return wire.Frame{}, denial{&refusal{statusNoProgram, fmt.Sprintf("%.256q is not routed to the bash-server", c.s.secrets.String(q.Execfn, false))}}
	}
	if err != nil {
		return wire.Frame{}, err
	}
	if p.verb >= verbJobs {
		return c.manage(p)
	}
	cwd := path.Clean(q.Cwd)
	if root := path.Clean(c.s.cfg.WorkspaceRoot); !inside(root, cwd) {
		return wire.Frame{}, &refusal{statusNotRun, fmt.Sprintf("working directory %.256q is outside the workspace %.256q; start it in a folder in there", c.s.secrets.String(cwd, false), root)}
	}
	select {
	case c.s.commands <- struct{}{}:
	default:
		return wire.Frame{}, &refusal{statusNotRun, fmt.Sprintf("the bash-server is busy: %d commands are running", c.s.cfg.MaxCommands)}
	}
	leave := sync.OnceFunc(func() { <-c.s.commands })
	defer func() { leave() }()
	if p.verb == verbBackground {
		if err := c.s.roomForJob(); err != nil {
			return wire.Frame{}, err
		}
		leave = sync.OnceFunc(func() {
			<-c.s.commands
			c.s.jobs.release()
		})
	}
	j, err := c.prepare(p)
	if err != nil {
		return wire.Frame{}, &refusal{statusNotRun, err.Error()}
	}
	j.leave = leave
	defer func() {
		if no := new(refusal); p.json && errors.As(err, &no) {
			c.out, j.client[1] = j.client[1], nil
		}
		j.close()
	}()
	if j.job != nil {
		j.job.cwd, j.job.text = c.s.secrets.String(cwd, false), c.s.jobText(p.argv)
	}
	cmd := wire.Command{Path: p.path, Argv: p.argv, Env: c.s.cfg.environment(q.Env, cwd), Cwd: cwd}
	if err = j.start(cmd); err != nil {
		return wire.Frame{}, &refusal{statusNotRun, err.Error()}
	}
	c.s.pending.Add(int64(-size)) // the request lies in the memfd now
	q, size = wire.Request{}, 0
	return j.wait()
}

// errAnswered says that the client has its answer already.
var errAnswered = errors.New("answered")

// roomForJob says why no job may be started, or takes the place of one.
func (s *Server) roomForJob() error {
	if s.cfg.Jobs == 0 {
		return &refusal{statusNotRun, "no command may run in the background here: sandbox.background.keep is none in the manifest, which the user can change"}
	}
	if !s.jobs.reserve(s.cfg.Jobs) {
		return &refusal{statusNotRun, fmt.Sprintf("as many jobs run as there may be, %d; end one: sharness-bash --jobs, sharness-bash --kill ID", s.cfg.Jobs) + raise("sandbox.background.jobs")}
	}
	return nil
}

// frameCost is what keeping an argument or a variable takes beside its text.
const frameCost = 32

// request reads until Start. Size is what the request has reserved, also beside an error.
func (c *conn) request() (q wire.Request, size int, err error) {
	c.frames.Conn.SetDeadline(time.Now().Add(c.s.cfg.RequestTimeout))
	var a wire.Assembler
	for done := false; !done; {
		f, err := c.frames.ReadFrame()
		if err != nil {
			return q, size, err
		}
		n := len(f.Payload) + frameCost
		if !c.s.reserve(n) {
			return q, size, &refusal{statusNotRun, "the bash-server is busy: too many large requests"}
		}
		size += n
		if done, err = a.Add(f); err != nil {
			return q, size, err
		}
	}
	c.frames.Conn.SetDeadline(time.Time{})
	return a.Request(), size, nil
}

// signalRate bounds what one client can make the supervisor do.
const (
	signalBurst = 32
	signalPause = 10 * time.Millisecond
)

// listen takes what a client may send while its command runs: signals. Anything else ends the connection, and with it
// the command. It returns when the connection is closed by either side.
func (c *conn) listen() {
	defer c.cancel()
	for n := 0; ; n++ {
		f, err := c.frames.ReadFrame()
		if err != nil {
			return
		}
		sig, err := wire.DecodeSignal(f)
		if err != nil {
			return
		}
		if n >= signalBurst {
			time.Sleep(signalPause) // not synchronisation: this is the price of another signal
		}
		select {
		case c.signals <- sig:
		case <-c.ending:
			// The command is gone, its last output waits for a reader. Who interrupts now does not want it.
			if s := unix.Signal(sig); s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT {
				c.cancel()
			}
		}
	}
}
