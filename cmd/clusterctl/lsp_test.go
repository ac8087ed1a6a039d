package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.lsp.dev/jsonrpc2"
	"go.lsp.dev/protocol"
	"go.lsp.dev/uri"
	"go.uber.org/zap"
)

// testEditor receives the server's messages from the client library.
type testEditor struct {
	protocol.Client
	diagnostics chan *protocol.PublishDiagnosticsParams
}

func (e *testEditor) PublishDiagnostics(_ context.Context, p *protocol.PublishDiagnosticsParams) error {
	e.diagnostics <- p
	return nil
}

// stdPipes are a process's standard input and output.
type stdPipes struct {
	io.Reader
	io.WriteCloser
}

const editedConfiguration = `cluster "home" {}

variable "address" {
  default = "10.0.0.1"
}

machine "one" {
  address = var.address
  roles   = ["control-plane"]
}
`

// The language client of an editor works with the program as editors start it.
func TestTheServerWorksWithAClientLibrary(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	path := filepath.Join(dir, "cluster.hcl")
	if err := os.WriteFile(path, []byte(editedConfiguration), 0o644); err != nil {
		t.Fatal(err)
	}
	program, pipes := startLanguageServer(ctx, t)
	e := &testEditor{diagnostics: make(chan *protocol.PublishDiagnosticsParams, 10)}
	ctx, conn, server := protocol.NewClient(ctx, e, jsonrpc2.NewStream(pipes), zap.NewNop())
	document := uri.File(path)
	// change replaces the whole document.
	open := editedConfiguration
	change := func(version int32, text string) {
		t.Helper()
		all := protocol.Range{End: protocol.Position{Line: uint32(strings.Count(open, "\n"))}}
		open = text
		if err := server.DidChange(ctx, &protocol.DidChangeTextDocumentParams{
			TextDocument: protocol.VersionedTextDocumentIdentifier{
				TextDocumentIdentifier: protocol.TextDocumentIdentifier{URI: document}, Version: version,
			},
			ContentChanges: []protocol.TextDocumentContentChangeEvent{{Range: all, Text: text}},
		}); err != nil {
			t.Fatal(err)
		}
	}

	openDocument(ctx, t, server, dir, document)
	if list := e.waitDiagnostics(ctx, t, document); len(list) != 0 {
		t.Errorf("a valid document has %+v", list)
	}

	hover, err := server.Hover(ctx,
		&protocol.HoverParams{TextDocumentPositionParams: positionAfter(t, document, editedConfiguration, "\n  role")})
	if err != nil || hover == nil || !strings.Contains(hover.Contents.Value, "control-plane, node, or both") {
		t.Errorf("hover %+v, %v", hover, err)
	}
	places, err := server.Definition(ctx,
		&protocol.DefinitionParams{TextDocumentPositionParams: positionAfter(t, document, editedConfiguration,
			"var.addr")})
	if err != nil || len(places) != 1 || places[0].URI != document || places[0].Range.Start.Line != 2 {
		t.Errorf("definition %+v, %v", places, err)
	}

	// An error is reported at its place, and the report is withdrawn when the error is corrected.
	mistaken := strings.Replace(editedConfiguration, "roles   = [\"control-plane\"]",
		"roles   = [\"control-plan\"]\n  la", 1)
	change(2, mistaken)
	if list := e.waitDiagnostics(ctx, t, document); len(list) == 0 ||
		!slices.ContainsFunc(list, func(d protocol.Diagnostic) bool {
			return d.Severity == protocol.DiagnosticSeverityError && d.Range.Start.Line >= 8
		}) {
		t.Errorf("a mistake has %+v", list)
	}
	offered, err := server.Completion(ctx,
		&protocol.CompletionParams{TextDocumentPositionParams: positionAfter(t, document, mistaken, "\n  la")})
	if err != nil ||
		!slices.ContainsFunc(offered.Items, func(i protocol.CompletionItem) bool { return i.Label == "labels" }) {
		t.Errorf("completion %+v, %v", offered, err)
	}
	change(3, editedConfiguration)
	if list := e.waitDiagnostics(ctx, t, document); len(list) != 0 {
		t.Errorf("the corrected document has %+v", list)
	}

	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := server.Exit(ctx); err != nil {
		t.Error(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	_ = conn.Close() // the other end is closed
}

// openDocument greets the server and opens a document.
func openDocument(ctx context.Context, t *testing.T, server protocol.Server, dir string, document uri.URI) {
	greeting, err := server.Initialize(ctx,
		&protocol.InitializeParams{RootURI: uri.File(dir), Capabilities: protocol.ClientCapabilities{}})
	if err != nil {
		t.Fatal(err)
	}
	if greeting.Capabilities.CompletionProvider == nil || greeting.Capabilities.HoverProvider != true ||
		greeting.Capabilities.DefinitionProvider != true {
		t.Errorf("the server offers %+v", greeting.Capabilities)
	}
	if err := server.Initialized(ctx, &protocol.InitializedParams{}); err != nil {
		t.Fatal(err)
	}
	if err := server.DidOpen(ctx,
		&protocol.DidOpenTextDocumentParams{TextDocument: protocol.TextDocumentItem{URI: document,
			LanguageID: "clusterctl", Version: 1, Text: editedConfiguration}}); err != nil {
		t.Fatal(err)
	}
}

// positionAfter returns the position after a mark in the text of a document.
func positionAfter(t *testing.T, document uri.URI, text, mark string) protocol.TextDocumentPositionParams {
	t.Helper()
	i := strings.Index(text, mark)
	if i < 0 {
		t.Fatalf("there is no %q", mark)
	}
	before := text[:i+len(mark)]
	return protocol.TextDocumentPositionParams{
		TextDocument: protocol.TextDocumentIdentifier{URI: document},
		Position: protocol.Position{
			Line:      uint32(strings.Count(before, "\n")),
			Character: uint32(len(before) - strings.LastIndexByte(before, '\n') - 1),
		},
	}
}

// waitDiagnostics waits for the next diagnostics of a document.
func (e *testEditor) waitDiagnostics(ctx context.Context, t *testing.T, document uri.URI) []protocol.Diagnostic {
	t.Helper()
	for {
		select {
		case p := <-e.diagnostics:
			if p.URI == document {
				return p.Diagnostics
			}
		case <-ctx.Done():
			t.Fatal("no diagnostics came")
		}
	}
}

// startLanguageServer starts the program as editors do.
func startLanguageServer(ctx context.Context, t *testing.T) (*exec.Cmd, stdPipes) {
	program := exec.CommandContext(ctx, "clusterctl", "lsp")
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	program.Stderr = os.Stderr
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	return program, stdPipes{out, in}
}
