package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// Collector receives, folds and writes the events of one session. Make it with New before the process is confined and
// Run it after.
type Collector struct {
	// Rewrite, if not nil, is applied to the texts of every event before anything else is done with it (event.Rewrite).
	Rewrite func(s string, cut bool) string

	config  Config
	sources []*source
	writers []*writer
	control *os.File
	folder  *event.Folder
	seq     uint64
	bad     uint64       // malformed datagrams already reported
	broken  uint64       // events of ours that could not be encoded
	end     *event.Event // the supervisor's session.end, kept so that it is the last line
	beat    time.Duration
	refused bool // an exec, which the supervisor was told
}

// How often a heartbeat says that the log is alive, how often summaries are looked for, and how long a sink may take
// for what is queued at the end: with the wait before it, less than the 2 s after which nothing of a session may be left.
const (
	heartbeat = time.Minute
	tick      = time.Second
	drainTime = 1500 * time.Millisecond
)

// New takes over the descriptors of c.
func New(c Config, fold event.FoldOptions) (*Collector, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	col := &Collector{config: c, folder: event.NewFolder(fold), seq: c.After, beat: heartbeat}
	for _, s := range c.Sources {
		src, err := newSource(s)
		if err != nil {
			return nil, err
		}
		col.sources = append(col.sources, src)
	}
	if c.Control >= 0 {
		if err := unix.SetNonblock(c.Control, true); err != nil {
			return nil, fmt.Errorf("events: control: %w", err)
		}
		col.control = os.NewFile(uintptr(c.Control), "control")
	}
	for _, t := range c.Sinks {
		col.writers = append(col.writers, newWriter(t, col.Reopen))
	}
	return col, nil
}

// Run collects until every producer is gone or ctx is done, then writes what is held back and, last, session.end with
// the counts. The error is of a channel that broke, and what came before it has been written; or of lines that a sink did
// not take, because a sink that is full cannot say so itself.
func (c *Collector) Run(ctx context.Context) error {
	in := make(chan *event.Event, queueLen)
	failed := make(chan error, len(c.sources)+1)
	var readers sync.WaitGroup
	for _, s := range c.sources {
		readers.Go(func() {
			if err := s.read(in); err != nil {
				failed <- err
			}
		})
	}
	go func() { readers.Wait(); close(in) }()
	if c.control != nil {
		go func() {
			if err := control(c.control, c.replace); err != nil {
				failed <- err
			}
		}()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, s := range c.sources {
			// Not now: what is queued in the sockets is still read.
			_ = s.file.SetReadDeadline(time.Now().Add(tick / 10))
		}
	})
	defer stop()
	c.loop(in)
	errs := []error{c.finish()}
	select {
	case err := <-failed:
		errs = append(errs, err)
	default:
	}
	return errors.Join(errs...)
}

func (c *Collector) loop(in <-chan *event.Event) {
	ticker, beat := time.NewTicker(tick), time.NewTicker(c.beat)
	defer ticker.Stop()
	defer beat.Stop()
	for {
		select {
		case e, ok := <-in:
			if !ok {
				return
			}
			if c.Rewrite != nil {
				e.Rewrite(c.Rewrite)
			}
			if e.Type == event.ExecDenied && e.Phase != "probe" && !c.refused {
				c.refused = true
				c.tell(sawRefusedExec)
			}
			if e.Type == event.SessionEnd {
				c.end = e
				continue
			}
			if out := c.folder.Add(e, time.Now()); out != nil {
				c.emit(out)
			}
		case now := <-ticker.C:
			c.emitAll(c.folder.Tick(now))
			c.reportBad(now)
		case now := <-beat.C:
			c.emit(&event.Event{Time: now, Type: event.Heartbeat, Data: c.data()})
		}
	}
}

// emit gives e its place in the session's order and hands it to every sink.
func (c *Collector) emit(e *event.Event) {
	it, ok := c.place(e)
	if !ok {
		return
	}
	for _, w := range c.writers {
		w.put(it)
	}
}

func (c *Collector) place(e *event.Event) (it item, ok bool) {
	c.seq++
	e.Schema, e.Session, e.Seq, e.Time = event.Schema, c.config.Session, c.seq, e.Time.UTC()
	line, err := event.Encode(e)
	if err != nil {
		c.broken++ // decoded and yet not to be encoded: FuzzDecode says it cannot be, and if it is the heartbeat shows it
		return it, false
	}
	return item{e, line}, true
}

func (c *Collector) emitAll(events []*event.Event) {
	for _, e := range events {
		c.emit(e)
	}
}

// reportBad says once per tick how many datagrams were none of the events their producer may send.
func (c *Collector) reportBad(now time.Time) {
	var sum uint64
	data := map[string]any{}
	for _, s := range c.sources {
		if n := s.bad.Load(); n > 0 {
			data[s.name] = n
			sum += n
		}
	}
	if sum <= c.bad {
		return
	}
	count := sum - c.bad
	c.bad = sum
	c.emit(&event.Event{Time: now, Type: event.EventsLost, Count: count, Cause: "malformed", Data: data,
		Detail: "datagrams that are no event, or none that this producer may send"})
}

// data is what the log says about itself.
func (c *Collector) data() map[string]any {
	n := c.folder.Counts()
	d := map[string]any{"produced": n.Produced, "emitted": n.Emitted, "folded": n.Folded, "dropped": n.Dropped,
		"overflow": n.Overflow, "malformed": c.bad}
	if c.broken > 0 {
		d["broken"] = c.broken
	}
	lost := map[string]any{}
	for _, w := range c.writers {
		if l := w.lost.Load(); l > 0 {
			lost[w.name] = l
		}
	}
	if len(lost) > 0 {
		d["sink_lost"] = lost
	}
	return d
}

func (c *Collector) finish() error {
	now := time.Now()
	c.emitAll(c.folder.Flush(now))
	c.reportBad(now)
	end := c.end
	if end == nil {
		end = &event.Event{Time: now, Type: event.SessionEnd, Cause: "lost", Detail: "the supervisor ended without saying so"}
	}
	data := c.data()
	for k, v := range end.Data {
		if _, taken := data[k]; !taken {
			data[k] = v
		}
	}
	end.Data = data
	late, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	it, ok := c.place(end)
	for _, w := range c.writers {
		go w.end(late, it, ok)
	}
	var errs []error
	for _, w := range c.writers {
		select {
		case <-w.done:
		case <-late.Done():
			return errors.Join(append(errs, fmt.Errorf("events: %s takes too long; the last lines may be missing", w.name))...)
		}
		if n := w.lost.Load(); n > 0 {
			errs = append(errs, fmt.Errorf("events: %d lines are missing in %s: %w", n, w.name, orFull(w.why)))
		}
	}
	return errors.Join(errs...)
}

// orFull is why lines were lost: a refusal, or else the queue of a slow sink.
func orFull(err error) error {
	if err == nil {
		return errors.New("it was too slow")
	}
	return err
}

func (c *Collector) replace(number, fd int) error {
	if number >= len(c.writers) || c.writers[number].kind == Terminal {
		return fmt.Errorf("events: control: sink %d cannot be opened again", number)
	}
	c.writers[number].replace(fd)
	return nil
}
