package fakellm

import "encoding/json"

// anthropic is the Messages dialect: POST /v1/messages.
type anthropic struct{}

func (anthropic) read(_ string, body []byte) (request, error) {
	var in struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content content
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	req := request{model: in.Model, stream: in.Stream}
	for _, t := range in.Tools {
		req.tools = append(req.tools, t.Name)
	}
	for _, m := range in.Messages {
		if m.Role == "assistant" {
			req.answered()
			continue
		}
		var said content
		for _, p := range m.Content {
			switch p.Type {
			case "tool_result":
				req.results = append(req.results, Result{ID: p.ToolUseID, IsError: p.IsError, Text: p.Content.text()})
			case "text":
				said = append(said, p)
			}
		}
		req.said(said.text())
	}
	return req, nil
}

func (anthropic) blocks(a answer) []object {
	var out []object
	if a.turn.Text != "" || len(a.turn.Calls) == 0 {
		out = append(out, object{"type": "text", "text": a.turn.Text})
	}
	for i, c := range a.turn.Calls {
		out = append(out, object{"type": "tool_use", "id": a.callID(i), "name": c.Name, "input": c.input()})
	}
	return out
}

func (d anthropic) message(a answer) object {
	stop := "end_turn"
	if len(a.turn.Calls) > 0 {
		stop = "tool_use"
	}
	return object{
		"id": a.id("msg"), "type": "message", "role": "assistant", "model": a.req.model,
		"content": d.blocks(a), "stop_reason": stop, "stop_sequence": nil,
		"usage": object{"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
	}
}

func (d anthropic) plain(a answer) object { return d.message(a) }

func (d anthropic) stream(a answer, emit func(name string, o object)) {
	whole := d.message(a)
	stop := whole["stop_reason"]
	whole["content"], whole["stop_reason"] = []object{}, nil
	emit("message_start", object{"type": "message_start", "message": whole})
	for i, b := range d.blocks(a) {
		delta := object{"type": "text_delta", "text": b["text"]}
		open := object{"type": "text", "text": ""}
		if b["type"] == "tool_use" {
			input, _ := json.Marshal(b["input"])
			delta = object{"type": "input_json_delta", "partial_json": string(input)}
			open = object{"type": "tool_use", "id": b["id"], "name": b["name"], "input": object{}}
		}
		emit("content_block_start", object{"type": "content_block_start", "index": i, "content_block": open})
		emit("content_block_delta", object{"type": "content_block_delta", "index": i, "delta": delta})
		emit("content_block_stop", object{"type": "content_block_stop", "index": i})
	}
	emit("message_delta", object{
		"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil},
		"usage": object{"output_tokens": 1},
	})
	emit("message_stop", object{"type": "message_stop"})
}

func (anthropic) failure(status int, text string) object {
	kind := "api_error"
	switch status {
	case 401:
		kind = "authentication_error"
	case 429:
		kind = "rate_limit_error"
	case 529:
		kind = "overloaded_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": text}}
}
