package lsp

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
)

// server is the state of one editor's session.
type server struct {
	out           io.Writer
	isInitialized bool
	texts         map[string]string          // texts of open documents, by path
	published     map[string]map[string]bool // by directory, the files for which diagnostics were sent
}

// requestHandlers maps the supported request methods to their handlers.
var requestHandlers = map[string]func(s *server, params json.RawMessage) (any, error){
	"initialize":                  initialize,
	"shutdown":                    func(*server, json.RawMessage) (any, error) { return nil, nil },
	"textDocument/completion":     atPosition(complete),
	"textDocument/hover":          atPosition(describe),
	"textDocument/definition":     atPosition(define),
	"textDocument/documentSymbol": atPosition(symbols),
	"textDocument/formatting":     atPosition(format),
}

// notificationHandlers maps the supported notification methods to their handlers.
var notificationHandlers = map[string]func(s *server, params json.RawMessage) error{
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
				err = s.send(message{ID: m.ID, Error: &responseError{internalError, text}})
			} else {
				err = s.notify("window/logMessage", map[string]any{"type": 1, "message": text})
			}
		}
	}()
	if m.ID == nil {
		if notice := notificationHandlers[m.Method]; notice != nil && s.isInitialized {
			return notice(s, m.Params)
		}
		return nil
	}
	request := requestHandlers[m.Method]
	switch {
	case m.Method == "":
		return nil // a response from the editor
	case request == nil:
		return s.send(message{ID: m.ID, Error: &responseError{unknownMethod, "there is no method " + m.Method}})
	case !s.isInitialized && m.Method != "initialize":
		return s.send(message{ID: m.ID, Error: &responseError{notInitialized, "initialize comes first"}})
	}
	result, err := request(s, m.Params)
	if err != nil {
		return s.send(message{ID: m.ID, Error: &responseError{invalidParams, err.Error()}})
	}
	return s.send(response{"2.0", m.ID, result})
}

func initialize(s *server, _ json.RawMessage) (any, error) {
	s.isInitialized = true
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
	var p openParams
	if err := json.Unmarshal(params, &p); err != nil {
		return nil
	}
	if path, ok := pathOf(p.TextDocument.URI); ok {
		s.texts[path] = p.TextDocument.Text
		return s.publishDiagnostics(path)
	}
	return nil
}

func didChange(s *server, params json.RawMessage) error {
	var p changeParams
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
		} else if from, to := offsetOf(text, c.Range.Start), offsetOf(text, c.Range.End); from <= to {
			text = text[:from] + c.Text + text[to:]
		}
		s.texts[path] = text
	}
	return s.publishDiagnostics(path)
}

func didSave(s *server, params json.RawMessage) error {
	var p positionParams
	if err := json.Unmarshal(params, &p); err != nil {
		return nil
	}
	if path, ok := pathOf(p.TextDocument.URI); ok {
		return s.publishDiagnostics(path)
	}
	return nil
}

func didClose(s *server, params json.RawMessage) error {
	var p positionParams
	if err := json.Unmarshal(params, &p); err != nil {
		return nil
	}
	if path, ok := pathOf(p.TextDocument.URI); ok {
		delete(s.texts, path)
		return s.publishDiagnostics(path)
	}
	return nil
}

// documentPosition is a position in an open document.
type documentPosition struct {
	path   string
	text   string
	offset int
}

// atPosition returns a request handler that calls f with the request's position.
func atPosition(f func(s *server, at documentPosition) any) func(*server, json.RawMessage) (any, error) {
	return func(s *server, params json.RawMessage) (any, error) {
		var p positionParams
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, fmt.Errorf("read the parameters: %w", err)
		}
		path, ok := pathOf(p.TextDocument.URI)
		text, open := s.texts[path]
		if !ok || !open {
			return nil, fmt.Errorf("%s is not open", p.TextDocument.URI)
		}
		return f(s, documentPosition{path, text, offsetOf(text, p.Position)}), nil
	}
}
