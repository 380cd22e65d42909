package fakellm

import (
	"encoding/json"
	"strings"
)

// request is what the service understands of a request, in whichever dialect it came.
type request struct {
	model     string
	stream    bool
	tools     []string
	answers   int // answers of the model in the history
	firstUser string
	lastUser  string
	results   []Result // tool results newer than the last answer
}

// Result is what an agent reported for one tool call.
type Result struct {
	ID      string `json:"id"`
	IsError bool   `json:"is_error,omitempty"` // Anthropic only: the other dialects have no such flag
	Text    string `json:"text"`
}

// answered notes an answer of the model: results seen so far belong to older turns.
func (r *request) answered() {
	r.answers++
	r.results = nil
}

func (r *request) said(text string) {
	if text == "" {
		return
	}
	if r.firstUser == "" {
		r.firstUser = text
	}
	r.lastUser = text
}

// content is a string, or a list of typed parts, as every dialect has it somewhere.
type content []part

type part struct {
	Type string `json:"type"`
	Text string `json:"text"`

	// Anthropic tool results.
	ToolUseID string  `json:"tool_use_id"`
	IsError   bool    `json:"is_error"`
	Content   content `json:"content"`
}

func (c *content) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*c = content{{Type: "text", Text: text}}
		return nil
	}
	var parts []part
	if err := json.Unmarshal(raw, &parts); err == nil {
		*c = parts
		return nil
	}
	// A single object, or something newer than this package: kept as text so that a test can still see it.
	*c = content{{Type: "text", Text: string(raw)}}
	return nil
}

// text joins the texts; a part without text is named by its type, so that a picture isn't taken for nothing.
func (c content) text() string {
	var out []string
	for _, p := range c {
		switch {
		case p.Text != "" || p.Type == "text" || p.Type == "":
			out = append(out, p.Text)
		default:
			out = append(out, "<"+p.Type+">")
		}
	}
	return strings.Join(out, "\n")
}
