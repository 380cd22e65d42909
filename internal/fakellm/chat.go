package fakellm

import (
	"encoding/json"
	"time"
)

// chat is OpenAI's Chat Completions dialect: POST /v1/chat/completions.
type chat struct{}

func (chat) read(_ string, body []byte) (request, error) {
	var in struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Function struct{ Name string }
		} `json:"tools"`
		Messages []struct {
			Role       string
			Content    content
			ToolCallID string `json:"tool_call_id"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	req := request{model: in.Model, stream: in.Stream}
	for _, t := range in.Tools {
		req.tools = append(req.tools, t.Function.Name)
	}
	for _, m := range in.Messages {
		switch m.Role {
		case "assistant":
			req.answered()
		case "tool":
			req.results = append(req.results, Result{ID: m.ToolCallID, Text: m.Content.text()})
		case "user":
			req.said(m.Content.text())
		}
	}
	return req, nil
}

func (chat) calls(a answer) []object {
	var out []object
	for i, c := range a.turn.Calls {
		out = append(out, object{
			"index": i, "id": a.callID(i), "type": "function",
			"function": object{"name": c.Name, "arguments": c.inputText()},
		})
	}
	return out
}

func (chat) finish(a answer) string {
	if len(a.turn.Calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

var chatUsage = object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}

func (d chat) plain(a answer) object {
	message := object{"role": "assistant", "content": a.turn.Text}
	if calls := d.calls(a); calls != nil {
		message["tool_calls"] = calls
	}
	return object{
		"id": a.id("chatcmpl"), "object": "chat.completion", "created": time.Now().Unix(), "model": a.req.model,
		"choices": []object{{"index": 0, "message": message, "finish_reason": d.finish(a)}},
		"usage":   chatUsage,
	}
}

func (d chat) stream(a answer, emit func(name string, o object)) {
	chunk := func(delta object, finish any) object {
		return object{
			"id": a.id("chatcmpl"), "object": "chat.completion.chunk", "created": time.Now().Unix(), "model": a.req.model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
		}
	}
	emit("", chunk(object{"role": "assistant", "content": a.turn.Text}, nil))
	for _, c := range d.calls(a) {
		emit("", chunk(object{"tool_calls": []object{c}}, nil))
	}
	last := chunk(object{}, d.finish(a))
	last["usage"] = chatUsage
	emit("", last)
}

func (chat) failure(status int, text string) object { return openAIFailure(status, text) }

func openAIFailure(status int, text string) object {
	return object{"error": object{"type": "server_error", "code": status, "message": text}}
}
