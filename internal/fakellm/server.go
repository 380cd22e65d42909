// Package fakellm is a scripted model service: it answers an agent's requests with the turns of a script, so that a
// test can make a real agent perform an exact sequence of tool calls, and it keeps what the agent reported for each.
//
// It speaks Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini, as one JSON object or as
// server-sent events, on 127.0.0.1 only. It checks no key, counts no tokens and knows only the parts of each dialect
// that agents were seen to use.
package fakellm

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// maxBody bounds a request; an agent's history with its tool descriptions is well below it.
const maxBody = 64 << 20

type object = map[string]any

// Entry is one request as the service saw it.
type Entry struct {
	N       int      `json:"n"`
	Method  string   `json:"method"`
	Path    string   `json:"path"`
	Kind    string   `json:"kind"`           // main, side (no tools offered) or other (no model request)
	Turn    int      `json:"turn"`           // of a main request
	Conv    int      `json:"conv,omitempty"` // index of the conversation; the main one comes last
	Status  int      `json:"status"`         // 0: hung up
	Model   string   `json:"model,omitempty"`
	Tools   []string `json:"tools,omitempty"`
	Results []Result `json:"results,omitempty"` // newer than the last answer
	User    string   `json:"user,omitempty"`    // newest user message
	Error   string   `json:"error,omitempty"`

	Body json.RawMessage `json:"-"`
}

// Server is a running service.
type Server struct {
	URL  string // http://127.0.0.1:PORT, without a path
	Port int

	player  *player
	http    *http.Server
	logTo   io.Writer
	mu      sync.Mutex
	entries []Entry
}

// New starts a service on a free port of 127.0.0.1, or on port if that is not 0. Each request is also written to
// log as one JSON line when log is not nil. The caller closes it.
func New(script Script, port int, log io.Writer) (*Server, error) {
	p, err := newPlayer(script)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("fakellm: listen: %w", err)
	}
	s := &Server{player: p, logTo: log, Port: l.Addr().(*net.TCPAddr).Port}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", s.Port)
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go s.http.Serve(l) //nolint:errcheck // it returns when Close is called, and with nothing else to say
	return s, nil
}

// Start is New for tests: the service ends with the test, and its log is printed if the test failed.
func Start(tb testing.TB, script Script) *Server {
	tb.Helper()
	s, err := New(script, 0, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.Close()
		if tb.Failed() {
			for _, e := range s.Entries() {
				line, _ := json.Marshal(e)
				tb.Logf("model: %.4000s", line)
			}
		}
	})
	return s
}

// Close ends the service and its connections.
func (s *Server) Close() error { return s.http.Close() }

// Entries returns the requests so far, in order of arrival.
func (s *Server) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Entry(nil), s.entries...)
}

// Result returns what was reported for a call (both numbers from 0) of a turn of the main conversation, and false if
// nothing was. The first report wins: agents repeat their history.
func (s *Server) Result(turn, call int) (Result, bool) {
	want := callID(len(s.player.script.Conversations), turn, call)
	for _, e := range s.Entries() {
		for _, r := range e.Results {
			if r.ID == want {
				return r, true
			}
		}
	}
	return Result{}, false
}

// dialect is one way to talk to a model.
type dialect interface {
	read(path string, body []byte) (request, error)
	plain(answer) object
	stream(a answer, emit func(name string, o object))
	failure(status int, text string) object
}

var dialects = []struct {
	path *regexp.Regexp
	dialect
	done bool // the stream ends with [DONE]
}{
	{regexp.MustCompile(`^(/v1)?/messages$`), anthropic{}, false},
	{regexp.MustCompile(`^(/v1)?/responses$`), responses{}, false},
	{regexp.MustCompile(`^(/v1)?/chat/completions$`), chat{}, true},
	{regexp.MustCompile(`^/v1(beta|alpha)?/models/[^/:]+:(streamGenerate|generate)Content$`), gemini{}, false},
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return
	}
	if r.Method == http.MethodPost {
		for _, d := range dialects {
			if d.path.MatchString(r.URL.Path) {
				s.model(w, r, body, d.dialect, d.done)
				return
			}
		}
	}
	status, reply := http.StatusNotFound, object{"error": object{"type": "not_found_error", "message": "fakellm: no such endpoint"}}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/count_tokens"):
		status, reply = http.StatusOK, object{"input_tokens": 1}
	case strings.HasSuffix(path, ":countTokens"):
		status, reply = http.StatusOK, object{"totalTokens": 1}
	case path == "/" && r.Method != http.MethodPost:
		status, reply = http.StatusOK, object{"ok": true}
	}
	s.note(Entry{Method: r.Method, Path: r.URL.Path, Kind: "other", Status: status, Body: body})
	writeJSON(w, status, reply)
}

func (s *Server) model(w http.ResponseWriter, r *http.Request, body []byte, d dialect, done bool) {
	entry := Entry{Method: r.Method, Path: r.URL.Path, Kind: "main", Body: body, Status: http.StatusOK}
	req, err := d.read(r.URL.Path, body)
	var turn Turn
	if err == nil {
		entry.Model, entry.Tools, entry.Results, entry.User = req.model, req.tools, req.results, req.lastUser
		turn, entry.Turn, entry.Conv, err = s.player.pick(req)
	}
	if err != nil {
		entry.Status, entry.Error = http.StatusBadRequest, err.Error()
		s.note(entry)
		writeJSON(w, entry.Status, d.failure(entry.Status, err.Error()))
		return
	}
	if entry.Turn < 0 {
		entry.Kind = "side"
	}
	if turn.Status != 0 {
		entry.Status = turn.Status
	}
	if turn.HangUp {
		entry.Status = 0
	}
	n := s.note(entry)
	time.Sleep(turn.delay())
	a := answer{req: req, turn: turn, n: n, turnN: entry.Turn, conv: entry.Conv}
	switch {
	case turn.HangUp:
		panic(http.ErrAbortHandler) // net/http's way to drop a connection without an answer
	case entry.Status >= 400:
		writeJSON(w, entry.Status, d.failure(entry.Status, turn.Error))
	case req.stream:
		writeStream(w, a, d, done)
	default:
		writeJSON(w, http.StatusOK, d.plain(a))
	}
}

func (s *Server) note(e Entry) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.N = len(s.entries) + 1
	s.entries = append(s.entries, e)
	if s.logTo != nil {
		json.NewEncoder(s.logTo).Encode(e) //nolint:errcheck // the log is for people; the service goes on without it
	}
	return e.N
}
