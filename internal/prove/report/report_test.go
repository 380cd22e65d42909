package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// attempted is one result at so many milliseconds after noon; each takes one.
func attempted(id string, at int, v probe.Verdict, errno string) probe.Result {
	door, _, _ := strings.Cut(id, "/")
	return probe.Result{ID: id, Door: door, Control: probe.Opens, Verdict: v, Errno: errno, Detail: "kill: refused", Start: noon.Add(time.Duration(at) * time.Millisecond), MS: 1}
}

func denied(at float64, errno, cause string) event.Event {
	return event.Event{Schema: 1, Time: noon.Add(time.Duration(at * float64(time.Millisecond))), Type: event.SignalDenied, Door: "sig", Errno: errno, Cause: cause,
		Session: "s", Seq: 1, Process: &event.Process{PID: 2}}
}

// stream is a control and a session.
type stream struct {
	t       *testing.T
	control []probe.Result
	session []probe.Result
	events  []event.Event
	end     End
	left    []string
	raw     string // what else the domain wrote
	page    io.Writer
}

func (s stream) write() (ok bool, table string, rep Report) {
	s.t.Helper()
	var in, out, js bytes.Buffer
	f := NewFrames(&in)
	send := func(k Kind, v any) {
		if err := f.Send(k, v); err != nil {
			s.t.Fatal(err)
		}
	}
	lines := func(k Kind, n int, at func(i int) any) {
		for i := range n {
			data, err := json.Marshal(at(i))
			if err != nil {
				s.t.Fatal(err)
			}
			fmt.Fprintf(f.Copy(k), "%s\n", data)
		}
	}
	send(KindHeader, Header{Version: "v", Kernel: "k", Doors: []Door{{ID: "sig", By: []string{"pid"}, Closed: true}, {ID: "exec-applet", Allowed: "by design"}}})
	if s.control != nil {
		send(KindBegin, Run{Name: "control", Mode: Control})
		lines(KindResults, len(s.control), func(i int) any { return s.control[i] })
		send(KindEnd, End{})
	}
	send(KindBegin, Run{Name: "static", Mode: Session, Control: "control", Traced: true})
	lines(KindResults, len(s.session), func(i int) any { return s.session[i] })
	for _, e := range s.events {
		line, err := event.Encode(&e)
		if err != nil {
			s.t.Fatal(err)
		}
		f.Copy(KindEvents).Write(append(bytes.TrimSuffix(line, []byte("\n")), '\n'))
	}
	fmt.Fprint(f.Copy(KindResults), s.raw)
	send(KindEnd, s.end)
	send(KindLeft, s.left)
	ok, err := Write(&in, Options{Table: &out, JSON: &js, Markdown: s.page})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(js.Bytes(), &rep); err != nil {
		s.t.Fatal(err)
	}
	return ok, out.String(), rep
}

// good is a stream in which all is well.
func good(t *testing.T) stream {
	return stream{t: t,
		control: []probe.Result{attempted("sig/a", 0, probe.Open, ""), attempted("sig/b", 2, probe.Open, "")},
		session: []probe.Result{attempted("sig/a", 10, probe.Closed, "EPERM"), attempted("sig/b", 12, probe.Closed, "EPERM")},
		events:  []event.Event{denied(10.5, "EPERM", "landlock"), denied(12.5, "EPERM", "landlock")},
	}
}

func TestProvenOnlyWhenNothingIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *stream)
		want   string // empty: proven
	}{
		"nothing":                 {func(*stream) {}, ""},
		"an open door":            {func(s *stream) { s.session[0].Verdict, s.session[0].Errno = probe.Open, "" }, "sig/a is OPEN"},
		"open by design":          {func(s *stream) { s.session[0].Door, s.session[0].Verdict = "exec-applet", probe.Open }, ""},
		"a broken attempt":        {func(s *stream) { s.session[1].Verdict = probe.Error }, "sig/b broke"},
		"no event":                {func(s *stream) { s.events = s.events[:1] }, "sig/b was refused with EPERM, and no event"},
		"another errno's event":   {func(s *stream) { s.events[1].Errno = "EACCES" }, "sig/b was refused with EPERM, and no event"},
		"an event before its act": {func(s *stream) { s.events[1].Time = noon.Add(10700 * time.Microsecond) }, "sig/b was refused with EPERM, and no event"},
		"a self-probe's event":    {func(s *stream) { s.events[1].Phase = "probe" }, "sig/b was refused with EPERM, and no event"},
		"a repetition counted":    {func(s *stream) { s.events = s.events[:1]; s.events[0].Count = 2 }, ""},
		"lost events":             {func(s *stream) { s.events = append(s.events, event.Event{Schema: 1, Type: event.EventsLost, Count: 3}) }, "3 events were lost"},
		"untraced": {func(s *stream) {
			s.events = []event.Event{{Schema: 1, Type: event.LayerOpen, Layer: "trace", Detail: "no BTF"}}
		}, "denials are not reported on this host: no BTF"},
		"a control that fails": {func(s *stream) { s.control[0].Verdict = probe.Closed }, "sig/a does not get through without sharness"},
		"an impossible one":    {func(s *stream) { s.control[0].Verdict = probe.Impossible }, ""},
		"ended early":          {func(s *stream) { s.session = s.session[:1] }, "1 of 2 attempts were made"},
		"arrived":              {func(s *stream) { s.end.Arrived = []string{"3 bytes to UDP"} }, "arrived outside: 3 bytes"},
		"changed":              {func(s *stream) { s.end.Changed = []string{"+ /x"} }, "the workspace changed: + /x"},
		"refused":              {func(s *stream) { s.end.Refused = "door sig is open" }, "the session did not start: door sig is open"},
		"left behind":          {func(s *stream) { s.left = []string{"/run/x"} }, "left behind: /run/x"},
		"noise":                {func(s *stream) { s.raw = "not a result\n" }, "cannot be read"},
		"a line without end":   {func(s *stream) { s.raw = strings.Repeat("x", maxLine+1) }, "a line of more than"},
	} {
		s := good(t)
		c.change(&s)
		ok, table, rep := s.write()
		switch {
		case c.want == "" && !ok:
			t.Errorf("%s: not proven: %q", name, rep.Problems)
		case c.want != "" && ok:
			t.Errorf("%s: proven", name)
		case c.want != "" && (len(rep.Problems) == 0 || !strings.Contains(rep.Problems[0], c.want)):
			t.Errorf("%s: %q, want %q", name, rep.Problems, c.want)
		case ok != strings.Contains(table, "\nPROVEN"):
			t.Errorf("%s: the table says otherwise:\n%s", name, table)
		}
	}
}

func TestControlIsPositiveOrSaysWhyItCannotBe(t *testing.T) {
	s := good(t)
	s.control = append(s.control, attempted("sig/c", 4, probe.Closed, "EPERM"), attempted("sig/d", 6, probe.Absent, ""), attempted("sig/e", 8, probe.Impossible, ""))
	s.session = append(s.session, attempted("sig/c", 20, probe.Absent, ""), attempted("sig/d", 22, probe.Absent, ""), attempted("sig/e", 24, probe.Absent, ""))
	s.control[2].Control, s.session[2].Control = probe.Refused, probe.Refused
	s.control[3].Control, s.session[3].Control = probe.Varies, probe.Varies
	s.control[4].Control, s.session[4].Control = probe.NoServer, probe.NoServer
	ok, _, rep := s.write()
	if !ok {
		t.Fatal(rep.Problems)
	}
	for i, want := range []string{"", "", "impossible for an ordinary user", "impossible on this host", "impossible without a session"} {
		a := rep.Runs[1].Attempts[i]
		if (want == "") != (a.ControlVerdict == probe.Open) || !strings.HasPrefix(a.ControlNote, want) || (want == "") != (a.ControlNote == "") {
			t.Errorf("%s: control %q %q, want %q", a.ID, a.ControlVerdict, a.ControlNote, want)
		}
	}
}

// A page that says "closed" of what is open by somebody's word has to say that too.
func TestPageNamesWhatMayGetThroughAndWhy(t *testing.T) {
	for _, open := range []bool{false, true} {
		s := good(t)
		if open {
			s.session[0].Door, s.session[0].Verdict, s.session[0].Errno = "exec-applet", probe.Open, ""
		}
		var page strings.Builder
		s.page = &page
		ok, table, rep := s.write()
		if !ok {
			t.Fatal(rep.Problems)
		}
		if sum := "2 attempts: 0 open, 1 allowed, 1 closed, "; strings.Contains(table, sum) != open {
			t.Errorf("open %v: %q in the table: %v\n%s", open, sum, !open, table)
		}
		for _, want := range []string{"closed, but for 1 attempt that may get through", "| sig/a | by design |"} {
			if strings.Contains(page.String(), want) != open {
				t.Errorf("open %v: %q in the page: %v\n%s", open, want, !open, page.String())
			}
		}
	}
}

func TestDoorsThatNothingAttackedAreNamed(t *testing.T) {
	const closed = "\nPROVEN: every door is closed, "
	for name, c := range map[string]struct {
		doors  []Door
		chosen bool
		want   string
	}{
		"all":      {nil, false, closed},
		"chosen":   {[]Door{{ID: "cmd-bomb"}, {ID: "net-sni"}}, true, closed},
		"commands": {[]Door{{ID: "cmd-bomb"}, {ID: "cmd-reach"}}, false, "\nNot attacked: cmd-bomb cmd-reach (those of commands: sudo sharness prove --sandbox).\n"},
		"both":     {[]Door{{ID: "net-sni"}, {ID: "cmd-bomb"}}, false, "; net-sni (no attempt is made: docs/side-doors).\n"},
	} {
		r := &Report{Header: Header{Doors: append(c.doors, Door{ID: "sig"}), Chosen: c.chosen}, Closed: true,
			Runs: []*RunReport{{Run: Run{Mode: Session}, Attempts: []Attempt{{Result: attempted("sig/a", 0, probe.Closed, "EPERM")}}}}}
		var out strings.Builder
		r.summary(&out)
		if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), closed) == strings.Contains(out.String(), "Not attacked") {
			t.Errorf("%s: got %s, want %q", name, out.String(), c.want)
		}
	}
}

func TestErrnosKeepToTheirColumn(t *testing.T) {
	many := []string{"EACCES", "EAGAIN", "ECONNREFUSED", "ENETUNREACH", "EPERM"}
	for n, want := range []string{"-", "EACCES", "EACCES EAGAIN", "EACCES EAGAIN ECONNREFUSED", "EACCES EAGAIN ECONNREFUSED +1", "EACCES EAGAIN ECONNREFUSED +2"} {
		if got := fitting(many[:n]); got != want {
			t.Errorf("%d errnos: got %q, want %q", n, got, want)
		}
	}
}

// Whoever ran in the domain chose the names.
func TestNothingInTheTableActsOnATerminal(t *testing.T) {
	s := good(t)
	s.session[0].Detail, s.session[0].Verdict, s.session[0].Errno = "\x1b]52;c;eA==\a\u202e", probe.Open, ""
	s.end.Arrived = []string{"\x1b[2J"}
	_, table, _ := s.write()
	if strings.ContainsAny(table, "\x1b\a\u202e") {
		t.Errorf("%q", table)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte{byte(KindBegin), 2, 0, 0, 0, '{', '}', byte(KindResults), 3, 0, 0, 0, '{', '}', '\n', byte(KindEvents), 1, 0, 0, 0, '\n'})
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		if ok, err := Write(bytes.NewReader(data), Options{Table: &out, Markdown: &out, JSON: &out}); ok && err == nil && len(data) == 0 {
			t.Error("proven by nothing")
		}
	})
}
