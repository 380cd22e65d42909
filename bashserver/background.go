package bashserver

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
)

// background is a command that runs on without its client: a job. It ends with the session at the latest.
type background struct {
	id    uint64 // the command's number
	cwd   string
	text  string // what runs, without secrets
	begun time.Time
	log   *ring
	stop  func()        // asks for its end
	over  chan struct{} // closed when it has ended

	// Written before over is closed.
	took   time.Duration
	how    wire.Record
	limits uint64
}

// backgrounds are the jobs of a session: those that run, and the last that ended.
type backgrounds struct {
	mu      sync.Mutex
	jobs    []*background // by id
	running int
}

// keepEnded is how many jobs that have ended keep their log.
const keepEnded = 8

// reserve makes room for one more.
func (b *backgrounds) reserve(max int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running >= max {
		return false
	}
	b.running++
	return true
}

func (b *backgrounds) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
}

func (b *backgrounds) add(j *background) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs = append(b.jobs, j)
	slices.SortFunc(b.jobs, func(x, y *background) int { return cmp.Compare(x.id, y.id) })
}

// ended closes a job, and forgets the one that ended first when there are too many.
func (b *backgrounds) ended(j *background) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(j.over)
	var first *background
	n := 0
	for _, x := range b.jobs {
		if x.running() {
			continue
		}
		n++
		if end := x.begun.Add(x.took); first == nil || end.Before(first.begun.Add(first.took)) {
			first = x
		}
	}
	if n > keepEnded {
		b.jobs = slices.DeleteFunc(b.jobs, func(x *background) bool { return x == first })
	}
}

func (b *backgrounds) all() []*background {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.jobs)
}

func (b *backgrounds) find(id uint64) *background {
	for _, j := range b.all() {
		if j.id == id {
			return j
		}
	}
	return nil
}

func (j *background) running() bool {
	select {
	case <-j.over:
		return false
	default:
		return true
	}
}

// state says in words how it is.
func (j *background) state() string {
	switch {
	case j.running():
		return "running"
	case j.how.A == uint64(wire.KindSignal):
		return "signal " + strconv.FormatUint(j.how.B, 10)
	}
	return "exit " + strconv.FormatUint(j.how.B, 10)
}

func (j *background) age() time.Duration {
	if j.running() {
		return time.Since(j.begun)
	}
	return j.took
}

// line is a job in --jobs.
func (j *background) line() string {
	return fmt.Sprintf("%d\t%s\t%s\t%s\n", j.id, j.state(), j.age().Round(time.Second), printable(j.text))
}

// object is a job in --json --jobs, without its closing brace.
func (j *background) object(w *bufio.Writer) {
	fmt.Fprintf(w, `{"job":%d,"running":%v,`, j.id, j.running())
	code, signal := 0, 0
	if !j.running() {
		if code = int(j.how.B); j.how.A == uint64(wire.KindSignal) {
			code, signal = 128+code, code
		}
		fmt.Fprintf(w, `"exit_code":%d,"signal":%d,`, code, signal)
	}
	fmt.Fprintf(w, `"duration_ms":%d,"command":`, j.age().Milliseconds())
	quote(w, []byte(j.text))
	w.WriteString(`,"cwd":`)
	quote(w, []byte(j.cwd))
	w.WriteString(`,"limits_hit":[`)
	if !j.running() {
		list(w, limitNames(j.limits))
	}
	w.WriteByte(']')
}

// printable is s with its control and format characters escaped.
func printable(s string) string {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	quote(w, []byte(s))
	w.Flush()
	return strings.Trim(b.String(), `"`)
}

// stopTime is how long --kill waits for the end it asked for.
const stopTime = 8 * time.Second

// manage answers what is asked about jobs.
func (c *conn) manage(p program) (wire.Frame, error) {
	var out bytes.Buffer
	var errs string
	w := bufio.NewWriter(&out)
	if p.verb == verbJobs {
		c.listJobs(w, p.json)
	} else {
		j := c.s.jobs.find(p.job)
		if j == nil {
			return wire.Frame{}, &refusal{statusNoJob, fmt.Sprintf("there is no job %d; the jobs there are: sharness-bash --jobs", p.job)}
		}
		if p.verb == verbKill {
			j.stop()
			select {
			case <-j.over:
			case <-time.After(stopTime):
				return wire.Frame{}, &refusal{statusNoJob, fmt.Sprintf("job %d has not ended %v after it was killed", p.job, stopTime)}
			case <-c.quit:
			}
		}
		errs = j.show(w, p)
	}
	w.Flush()
	if err := c.tell(out.Bytes(), errs); err != nil {
		return wire.Frame{}, &refusal{statusNotRun, err.Error()}
	}
	return wire.ExitFrame(wire.KindStatus, 0), nil
}

func (c *conn) listJobs(w *bufio.Writer, json bool) {
	if json {
		w.WriteByte('[')
	}
	for i, j := range c.s.jobs.all() {
		switch {
		case !json:
			w.WriteString(j.line())
			continue
		case i > 0:
			w.WriteByte(',')
		}
		j.object(w)
		w.WriteByte('}')
	}
	if json {
		w.WriteString("]\n")
	}
}

// show writes one job: how it is after --kill, its log for --job-log. What it returns is for standard error.
func (j *background) show(w *bufio.Writer, p program) (errs string) {
	log, lost := j.log.contents()
	switch {
	case p.json:
		j.object(w)
		if p.verb == verbLog {
			w.WriteString(`,"output":`)
			quote(w, log)
			fmt.Fprintf(w, `,"lost":%d`, lost)
		}
		w.WriteString("}\n")
	case p.verb == verbLog:
		w.Write(log)
		if lost > 0 {
			errs = fmt.Sprintf("sharness: the first %d bytes of its output are not kept\n", lost)
		}
	default:
		w.WriteString(j.line())
	}
	return errs
}

// tell writes to a client that started no command, until it is gone.
func (c *conn) tell(out []byte, errs string) error {
	fds := c.frames.TakeFDs()
	defer wire.CloseAll(fds)
	close(c.ending)
	c.busy.Go(c.listen)
	for i, b := range [][]byte{1: out, 2: []byte(errs)} {
		if len(b) == 0 {
			continue
		}
		to, err := newClientFD(fds[i], i, c.s.poll)
		if err == nil {
			err = to.write(b, c.quit)
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return nil
}

// detach turns a command that has just been started into a job: its client is told the number and let go.
func (j *job) detach() {
	b := j.job
	b.id, b.begun = j.number, j.begun
	stop := make(chan struct{})
	j.stop, b.stop = stop, sync.OnceFunc(func() { close(stop) })
	j.c.s.jobs.add(b)
	j.endInput()
	out := fmt.Sprintf("%d\n", b.id)
	errs := fmt.Sprintf("sharness: job %[1]d runs; its output: sharness-bash --job-log %[1]d; to end it: sharness-bash --kill %[1]d; all: sharness-bash --jobs\n", b.id)
	if j.p.json {
		out, errs = fmt.Sprintf("{\"job\":%d}\n", b.id), ""
	}
	client := j.client
	j.client = [3]*clientFD{}
	j.answered = make(chan struct{})
	// One that stops reading without going away would hold the job's place when the job has long ended.
	late := time.AfterFunc(answerTime, j.c.cancel)
	j.c.busy.Go(func() {
		defer close(j.answered)
		defer late.Stop()
		_ = client[1].write([]byte(out), j.c.quit) // a client that does not listen has a job all the same
		_ = client[2].write([]byte(errs), j.c.quit)
		for _, c := range client {
			if c != nil {
				c.close()
			}
		}
		j.c.frames.Conn.SetWriteDeadline(time.Now().Add(answerTime))
		_ = j.c.frames.WriteFrame(wire.ExitFrame(wire.KindStatus, 0))
		j.c.frames.Conn.Close()
	})
}

// maxText is how much of a command its name is looked for in.
const maxText = 4096

// jobText is what a job is called in lists: what it runs, without secrets.
func (s *Server) jobText(argv []string) string {
	if i := slices.IndexFunc(argv, func(a string) bool { return strings.HasPrefix(a, "-") && strings.HasSuffix(a, "c") }); i > 0 && i+1 < len(argv) {
		argv = argv[i+1:]
	}
	text := strings.Join(argv, " ")
	name := s.secrets.String(text[:min(len(text), maxText)], len(text) > maxText)
	return strings.ToValidUTF8(name[:min(len(name), 256)], "")
}
