package fakellm

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Script says what the model answers, request by request.
type Script struct {
	// Turns are the answers of the main conversation, in order.
	Turns []Turn `json:"turns"`
	// After is the answer once the turns are used up; the text "done" when nil.
	After *Turn `json:"after,omitempty"`
	// Side answers requests that offer no tools (titles, quota checks); the text "ok" when nil.
	Side *Turn `json:"side,omitempty"`
	// Conversations are told from the main one by their first user message: sub-agents have prompts of their own.
	Conversations []Conversation `json:"conversations,omitempty"`
	// Advance is how a request finds its turn: AdvanceHistory (the default) or AdvanceCounter.
	Advance string `json:"advance,omitempty"`
}

// With AdvanceHistory a request's turn is the number of answers in its own message history: a retry gets the same
// turn again. With AdvanceCounter each request that offers tools takes the next turn: the only way that survives an
// agent that shortens its history.
const (
	AdvanceHistory = "history"
	AdvanceCounter = "counter"
)

// Conversation is a list of turns for the requests whose first user message matches.
type Conversation struct {
	Match string `json:"match"` // a regular expression
	Turns []Turn `json:"turns"`
	After *Turn  `json:"after,omitempty"`
}

// Turn is one answer.
type Turn struct {
	Text  string `json:"text,omitempty"`
	Calls []Call `json:"calls,omitempty"`
	// Capture holds regular expressions tried on the tool results that came with the request. The first group of
	// KEY's expression replaces {{KEY}} in this turn and in every later one: how a script names a task's id.
	Capture map[string]string `json:"capture,omitempty"`
	DelayMS int               `json:"delay_ms,omitempty"` // wait before answering
	Status  int               `json:"status,omitempty"`   // answer with this HTTP error, and Error as its text
	Error   string            `json:"error,omitempty"`
	HangUp  bool              `json:"hang_up,omitempty"` // close the connection instead of answering
}

// Call is one tool call of a turn; the calls of one turn are made in parallel.
type Call struct {
	Name      string         `json:"name"`
	Input     map[string]any `json:"input,omitempty"`
	Raw       string         `json:"raw,omitempty"`       // Responses only: the text of a free-form tool
	Namespace string         `json:"namespace,omitempty"` // Responses only: the MCP server of a namespaced tool
}

// ReadScript decodes a script and refuses keys it doesn't know.
func ReadScript(r io.Reader) (Script, error) {
	var s Script
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Script{}, fmt.Errorf("fakellm: read script: %w", err)
	}
	return s, nil
}

// Expand returns the script with each {{NAME}} of vars replaced in every string.
func (s Script) Expand(vars map[string]string) (Script, error) {
	var out Script
	return out, expand(s, &out, vars)
}

// expand goes through JSON so that no string of the structure is forgotten.
func expand(in, out any, vars map[string]string) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("fakellm: expand: %w", err)
	}
	text := string(raw)
	for name, value := range vars {
		quoted, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("fakellm: expand %s: %w", name, err)
		}
		text = strings.ReplaceAll(text, "{{"+name+"}}", string(quoted[1:len(quoted)-1]))
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return fmt.Errorf("fakellm: expand: %w", err)
	}
	return nil
}

func (t Turn) delay() time.Duration { return time.Duration(t.DelayMS) * time.Millisecond }

// player is a script being played.
type player struct {
	mu       sync.Mutex
	script   Script
	match    []*regexp.Regexp // of script.Conversations
	used     []int            // requests seen per conversation; the last is the main one's
	captured map[string]string
}

func newPlayer(s Script) (*player, error) {
	if s.Advance != "" && s.Advance != AdvanceHistory && s.Advance != AdvanceCounter {
		return nil, fmt.Errorf("fakellm: advance %q: want %s or %s", s.Advance, AdvanceHistory, AdvanceCounter)
	}
	p := &player{script: s, used: make([]int, len(s.Conversations)+1), captured: map[string]string{}}
	for _, c := range s.Conversations {
		re, err := regexp.Compile("(?s)" + c.Match)
		if err != nil {
			return nil, fmt.Errorf("fakellm: conversation %q: %w", c.Match, err)
		}
		p.match = append(p.match, re)
	}
	return p, nil
}

// pick returns the turn of a request, its number (-1 for a side request) and its conversation.
func (p *player) pick(req request) (Turn, int, int, error) {
	main := len(p.script.Conversations)
	if len(req.tools) == 0 {
		return orElse(p.script.Side, "ok"), -1, main, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	conv, turns, after := main, p.script.Turns, p.script.After
	for i, re := range p.match {
		if re.MatchString(req.firstUser) {
			conv, turns, after = i, p.script.Conversations[i].Turns, p.script.Conversations[i].After
			break
		}
	}
	n := req.answers
	if p.script.Advance == AdvanceCounter {
		n = p.used[conv]
	}
	p.used[conv]++
	turn := orElse(after, "done")
	if n < len(turns) {
		turn = turns[n]
	}
	turn, err := p.capture(turn, req.results)
	return turn, n, conv, err
}

// capture needs p.mu held.
func (p *player) capture(turn Turn, results []Result) (Turn, error) {
	for name, expr := range turn.Capture {
		re, err := regexp.Compile(expr)
		if err != nil {
			return Turn{}, fmt.Errorf("fakellm: capture %s: %w", name, err)
		}
		for _, r := range results {
			if m := re.FindStringSubmatch(r.Text); len(m) > 1 {
				p.captured[name] = m[1]
				break
			}
		}
	}
	var out Turn
	return out, expand(turn, &out, p.captured)
}

func orElse(t *Turn, text string) Turn {
	if t == nil {
		return Turn{Text: text}
	}
	return *t
}
