package fakellm

import (
	"encoding/json"
	"strings"
)

// gemini is POST /v1beta/models/MODEL:generateContent and :streamGenerateContent.
type gemini struct{}

func (gemini) read(path string, body []byte) (request, error) {
	var in struct {
		Tools []struct {
			FunctionDeclarations []struct{ Name string } `json:"functionDeclarations"`
		} `json:"tools"`
		Contents []struct {
			Role  string
			Parts []struct {
				Text             string
				FunctionResponse *struct {
					ID       string
					Name     string
					Response json.RawMessage
				} `json:"functionResponse"`
			}
		} `json:"contents"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	_, name, _ := strings.Cut(path, "/models/")
	model, method, _ := strings.Cut(name, ":")
	req := request{model: model, stream: method == "streamGenerateContent"}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			req.tools = append(req.tools, f.Name)
		}
	}
	for _, c := range in.Contents {
		if c.Role == "model" {
			req.answered()
			continue
		}
		for _, p := range c.Parts {
			if r := p.FunctionResponse; r != nil {
				req.results = append(req.results, Result{ID: r.ID, Text: string(r.Response)})
				continue
			}
			req.said(p.Text)
		}
	}
	return req, nil
}

func (gemini) plain(a answer) object {
	var parts []object
	if a.turn.Text != "" || len(a.turn.Calls) == 0 {
		parts = append(parts, object{"text": a.turn.Text})
	}
	for i, c := range a.turn.Calls {
		parts = append(parts, object{"functionCall": object{"id": a.callID(i), "name": c.Name, "args": c.input()}})
	}
	return object{
		"candidates":    []object{{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": parts}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		"modelVersion":  a.req.model,
	}
}

func (d gemini) stream(a answer, emit func(name string, o object)) { emit("", d.plain(a)) }

func (gemini) failure(status int, text string) object {
	return object{"error": object{"code": status, "message": text, "status": "UNAVAILABLE"}}
}
