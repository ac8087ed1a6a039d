package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeAPI is an API server that knows its user, and a kubeconfig for it.
func fakeAPI(t *testing.T) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the-token" {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"status":{"userInfo":{"username":"jane"}}}`) // the client may be gone
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n"+
		"- {name: shop, cluster: {server: %q, insecure-skip-tls-verify: true}}\n"+
		"users: [{name: jane, user: {token: the-token}}, {name: none, user: {}}]\ncontexts:\n"+
		"- {name: a, context: {cluster: shop, user: jane}}\n- {name: b, context: {cluster: shop, user: none}}\n"+
		"current-context: b\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// startDashboard runs the command until the test ends, and returns the link that it prints.
func startDashboard(t *testing.T, args ...string) string {
	t.Helper()
	in, input := io.Pipe()
	output, out := io.Pipe()
	root := newRoot()
	root.SetArgs(append([]string{"dashboard"}, args...))
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(t.Output())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() { done <- runCommand(ctx, root) }()
	t.Cleanup(func() {
		cancel()
		select {
		case code := <-done:
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
		case <-time.After(20 * time.Second):
			t.Error("the command does not end")
		}
		_ = input.Close()
	})
	text := make([]byte, 1024)
	n, err := output.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, output) }() // until the test ends
	_, rest, ok := strings.Cut(string(text[:n]), "Dashboard: ")
	link, _, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf("the command prints %q", text[:n])
	}
	return link
}

// Proves S34.
func TestDashboardOpensWithTheCredentialsOfAContext(t *testing.T) {
	link := startDashboard(t, "--kubeconfig", fakeAPI(t), "--context", "a", "--no-browser")
	if !strings.HasPrefix(link, "http://127.0.0.1:") || strings.Contains(link, "the-token") {
		t.Errorf("the link is %s", link)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: 20 * time.Second}
	for _, path := range []string{link, link[:strings.Index(link, "/signin")] + "/api/session"} {
		answer, err := client.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s, %v", path, answer.Status, text, err)
		}
		if path != link && (!strings.Contains(string(text), `"user":"jane"`) ||
			!strings.Contains(string(text), `"cluster":"shop"`)) {
			t.Errorf("the session: %s", text)
		}
	}
}

// The program that opens a browser gets a link that signs in a process of the same user.
func TestDashboardOpensTheBrowser(t *testing.T) {
	dir := t.TempDir()
	opened := filepath.Join(dir, "opened")
	script := "#!/bin/sh\necho \"$1\" > " + opened + ".new && mv " + opened + ".new " + opened + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	printed := startDashboard(t, "--kubeconfig", fakeAPI(t), "--context", "a")
	var link string
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); link == ""; <-tick.C {
		if text, err := os.ReadFile(opened); err == nil {
			link = strings.TrimSpace(string(text))
		}
		if time.Now().After(deadline) {
			t.Fatal("no browser is opened")
		}
	}
	if link == printed {
		t.Error("the browser gets the code that is printed")
	}
	answer, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || len(answer.Cookies()) != 1 {
		t.Errorf("the browser's link: %s", answer.Status)
	}
}

func TestDashboardIsServedOnlyOnTheLoopbackInterface(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "[::]:0", "example.com:80", "127.0.0.1"} {
		var output strings.Builder
		root := newRoot()
		root.SetArgs([]string{"dashboard", "--kubeconfig", fakeAPI(t), "--no-browser", "--address", address})
		root.SetErr(&output)
		if code := runCommand(t.Context(), root); code != 1 || !strings.Contains(output.String(), "-address="+address) {
			t.Errorf("%s: exit code %d, %s", address, code, output.String())
		}
	}
}
