// Package lsp implements a language server. It sends the diagnostics of package load to editors, and completes from the
// schemas in package block. The size of messages is limited. It runs no programs and connects to no cluster.
package lsp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxMessage is the maximum size of a message in bytes.
const maxMessage = 32 << 20

// Serve handles an editor's messages until it sends exit, the stream ends, or ctx ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &server{out: out, texts: map[string]string{}, published: map[string]map[string]bool{}}
	r := bufio.NewReader(in)
	for ctx.Err() == nil {
		text, err := readMessage(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			if err := s.send(message{Error: &responseError{parseError, "this is not a JSON-RPC message"}}); err != nil {
				return err
			}
			continue
		}
		if m.Method == "exit" {
			return nil
		}
		if err := s.handle(m); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// readMessage returns the next message.
func readMessage(r *bufio.Reader) ([]byte, error) {
	length := -1
	for lines := 0; ; lines++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) || lines > 100 {
				return nil, errors.New("read a message: its header is too long")
			}
			return nil, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		if name, value, ok := strings.Cut(text, ":"); ok && strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return nil, fmt.Errorf("read a message: %q is not a length", value)
			}
		}
		if lines > 100 {
			return nil, errors.New("read a message: its header is too long")
		}
	}
	if length < 0 || length > maxMessage {
		return nil, fmt.Errorf("read a message: a length from 0 to %d is wanted", maxMessage)
	}
	text := make([]byte, length)
	_, err := io.ReadFull(r, text)
	return text, err
}

func (s *server) send(m any) error {
	if m, ok := m.(message); ok {
		m.Version = "2.0"
		return s.write(m)
	}
	return s.write(m)
}

func (s *server) write(m any) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "Content-Length: %d\r\n\r\n%s", len(text), text)
	return err
}

// notify sends a notification to the editor.
func (s *server) notify(method string, params any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return s.send(message{Method: method, Params: text})
}
