package fakellm

import (
	"encoding/json"
	"strings"
	"time"
)

// responses is OpenAI's Responses dialect: POST /v1/responses.
type responses struct{}

func (responses) read(_ string, body []byte) (request, error) {
	var in struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Tools  []responsesTool `json:"tools"`
		Input  json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	req := request{model: in.Model, stream: in.Stream}
	for _, t := range in.Tools {
		req.tools = append(req.tools, t.names()...)
	}
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		req.said(text)
		return req, nil
	}
	var items []struct {
		Type    string
		Role    string
		Content content
		CallID  string `json:"call_id"`
		Output  content
	}
	if err := json.Unmarshal(in.Input, &items); err != nil {
		return request{}, err
	}
	// An answer is a run of items of the model's (text, reasoning, calls): the run counts once.
	running := false
	for _, it := range items {
		switch {
		case strings.HasSuffix(it.Type, "_output"):
			running = false
			req.results = append(req.results, Result{ID: it.CallID, Text: it.Output.text()})
		case it.Role == "user":
			running = false
			req.said(it.Content.text())
		case it.Role == "assistant", it.Type == "reasoning", strings.HasSuffix(it.Type, "_call"):
			if !running {
				req.answered()
			}
			running = true
		}
	}
	return req, nil
}

// responsesTool is a function, a built-in tool known by its type only, or a namespace of functions.
type responsesTool struct {
	Type  string
	Name  string
	Tools []responsesTool
}

func (t responsesTool) names() []string {
	if len(t.Tools) > 0 {
		var out []string
		for _, inner := range t.Tools {
			out = append(out, t.Name+"/"+inner.Name)
		}
		return out
	}
	if t.Name != "" {
		return []string{t.Name}
	}
	return []string{t.Type}
}

func (responses) items(a answer) []object {
	var out []object
	if a.turn.Text != "" || len(a.turn.Calls) == 0 {
		out = append(out, object{
			"type": "message", "id": a.id("msg"), "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": a.turn.Text, "annotations": []object{}}},
		})
	}
	for i, c := range a.turn.Calls {
		item := object{
			"type": "function_call", "id": "fc_" + a.callID(i), "call_id": a.callID(i), "name": c.Name,
			"arguments": c.inputText(), "status": "completed",
		}
		if c.Raw != "" {
			item["type"], item["input"] = "custom_tool_call", c.Raw
			delete(item, "arguments")
		}
		if c.Namespace != "" {
			item["namespace"] = c.Namespace
		}
		out = append(out, item)
	}
	return out
}

func (d responses) plain(a answer) object {
	return object{
		"id": a.id("resp"), "object": "response", "created_at": time.Now().Unix(), "status": "completed",
		"model": a.req.model, "output": d.items(a),
		"usage": object{
			"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
			"input_tokens_details":  object{"cached_tokens": 0},
			"output_tokens_details": object{"reasoning_tokens": 0},
		},
	}
}

func (d responses) stream(a answer, emit func(name string, o object)) {
	number := 0
	send := func(name string, o object) {
		o["type"], o["sequence_number"] = name, number
		number++
		emit(name, o)
	}
	open := d.plain(a)
	open["status"], open["output"], open["usage"] = "in_progress", []object{}, nil
	send("response.created", object{"response": open})
	for i, item := range d.items(a) {
		begun := object{}
		for k, v := range item {
			begun[k] = v
		}
		begun["status"] = "in_progress"
		send("response.output_item.added", object{"output_index": i, "item": begun})
		if item["type"] == "message" {
			send("response.output_text.delta", object{
				"output_index": i, "content_index": 0, "item_id": item["id"], "delta": a.turn.Text,
			})
		}
		send("response.output_item.done", object{"output_index": i, "item": item})
	}
	send("response.completed", object{"response": d.plain(a)})
}

func (responses) failure(status int, text string) object { return openAIFailure(status, text) }
