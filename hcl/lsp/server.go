package lsp

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
)

// server is the state of one editor's session.
type server struct {
	out   io.Writer
	ready bool
	texts map[string]string          // texts of open documents, by path
	told  map[string]map[string]bool // by directory, the files for which diagnostics were sent
}

// requests maps the supported request methods to their handlers.
var requests = map[string]func(s *server, params json.RawMessage) (any, error){
	"initialize":                  initialize,
	"shutdown":                    func(*server, json.RawMessage) (any, error) { return nil, nil },
	"textDocument/completion":     onPlace(complete),
	"textDocument/hover":          onPlace(describe),
	"textDocument/definition":     onPlace(define),
	"textDocument/documentSymbol": onPlace(symbols),
	"textDocument/formatting":     onPlace(format),
}

// notices maps the supported notification methods to their handlers.
var notices = map[string]func(s *server, params json.RawMessage) error{
	"textDocument/didOpen":   didOpen,
	"textDocument/didChange": didChange,
	"textDocument/didSave":   didSave,
	"textDocument/didClose":  didClose,
}

// handle handles one message. A panic in a handler is reported to the editor and does not end the server.
func (s *server) handle(m message) (err error) {
	defer func() {
		if r := recover(); r != nil {
			text := fmt.Sprintf("%v\n%s", r, debug.Stack())
			if m.ID != nil {
				err = s.send(message{ID: m.ID, Error: &failure{internalError, text}})
			} else {
				err = s.notify("window/logMessage", map[string]any{"type": 1, "message": text})
			}
		}
	}()
	if m.ID == nil {
		if notice := notices[m.Method]; notice != nil && s.ready {
			return notice(s, m.Params)
		}
		return nil
	}
	request := requests[m.Method]
	switch {
	case m.Method == "":
		return nil // a response from the editor
	case request == nil:
		return s.send(message{ID: m.ID, Error: &failure{unknownMethod, "there is no method " + m.Method}})
	case !s.ready && m.Method != "initialize":
		return s.send(message{ID: m.ID, Error: &failure{notInitialized, "initialize comes first"}})
	}
	result, err := request(s, m.Params)
	if err != nil {
		return s.send(message{ID: m.ID, Error: &failure{invalidParams, err.Error()}})
	}
	return s.send(answer{"2.0", m.ID, result})
}

func initialize(s *server, _ json.RawMessage) (any, error) {
	s.ready = true
	return map[string]any{
		"serverInfo": map[string]any{"name": "clusterctl"},
		"capabilities": map[string]any{
			"textDocumentSync":           map[string]any{"openClose": true, "change": 1, "save": true},
			"completionProvider":         map[string]any{"triggerCharacters": []string{".", "\""}},
			"hoverProvider":              true,
			"definitionProvider":         true,
			"documentSymbolProvider":     true,
			"documentFormattingProvider": true,
		},
	}, nil
}

func didOpen(s *server, params json.RawMessage) error {
	var p opened
	if err := json.Unmarshal(params, &p); err != nil {
		return nil
	}
	if path, ok := pathOf(p.TextDocument.URI); ok {
		s.texts[path] = p.TextDocument.Text
		return s.judge(path)
	}
	return nil
}

func didChange(s *server, params json.RawMessage) error {
	var p changed
	if err := json.Unmarshal(params, &p); err != nil || len(p.ContentChanges) == 0 {
		return nil
	}
	path, ok := pathOf(p.TextDocument.URI)
	if !ok {
		return nil
	}
	for _, c := range p.ContentChanges {
		text := s.texts[path]
		if c.Range == nil {
			text = c.Text
		} else if from, to := offset(text, c.Range.Start), offset(text, c.Range.End); from <= to {
			text = text[:from] + c.Text + text[to:]
		}
		s.texts[path] = text
	}
	return s.judge(path)
}

func didSave(s *server, params json.RawMessage) error {
	var p onDocument
	if err := json.Unmarshal(params, &p); err != nil {
		return nil
	}
	if path, ok := pathOf(p.TextDocument.URI); ok {
		return s.judge(path)
	}
	return nil
}

func didClose(s *server, params json.RawMessage) error {
	var p onDocument
	if err := json.Unmarshal(params, &p); err != nil {
		return nil
	}
	if path, ok := pathOf(p.TextDocument.URI); ok {
		delete(s.texts, path)
		return s.judge(path)
	}
	return nil
}

// place is a position in an open document.
type place struct {
	path   string
	text   string
	offset int
}

// onPlace returns a request handler that calls f with the request's position.
func onPlace(f func(s *server, at place) any) func(*server, json.RawMessage) (any, error) {
	return func(s *server, params json.RawMessage) (any, error) {
		var p onDocument
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, fmt.Errorf("read the parameters: %w", err)
		}
		path, ok := pathOf(p.TextDocument.URI)
		text, open := s.texts[path]
		if !ok || !open {
			return nil, fmt.Errorf("%s is not open", p.TextDocument.URI)
		}
		return f(s, place{path, text, offset(text, p.Position)}), nil
	}
}
