package remote

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A kubeconfig has the address of a webhook and the credentials for it. Paths in it are relative to its own.
// Proves S12.
func TestKubeconfigsNameServerAndCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/ask" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"answer":"yes"}`)) // the client may have left
	}))
	defer server.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "hook.conf")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {certificate-authority: ca.crt, server: " +
		"'" + server.URL + "/ask'}}]\nusers: [{name: u, user: {tokenFile: token}}]\n" +
		"contexts: [{name: a, context: {cluster: a, user: u}}]\ncurrent-context: a\n"
	s, err := New([]byte(text), path, 5*time.Second, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	var review struct{ Answer string }
	if err := s.Review(t.Context(), &review); err != nil || review.Answer != "yes" {
		t.Errorf("%+v, %v", review, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"no YAML": {"a: [", "read the webhook's configuration " + path},
		"nothing": {"", "read the webhook's configuration " + path},
		"no such context": {strings.Replace(text, "current-context: a", "current-context: b", 1), "context was not " +
			"found for specified context: b"},
		"no server": {strings.Replace(text, "server: '"+server.URL+"/ask'", "server: ''", 1), "read the webhook's " +
			"configuration " + path},
		"no URL": {strings.Replace(text, server.URL+"/ask", "::", 1), "read the webhook's configuration " + path},
		"no certificate": {strings.Replace(text, "certificate-authority: "+
			"ca.crt", "certificate-authority-data: bm9uZQ==", 1), "set up the webhook of " + path},
		"no file of a user": {strings.Replace(text, "tokenFile: token", "client-certificate: c.crt, client-key: "+
			"c.key", 1), "read the webhook's configuration " + path},
	} {
		if _, err := New([]byte(c.text), path, time.Second, os.ReadFile); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The CA of a webhook can be rotated: the files that a kubeconfig names are read with the given function, so their
// changes are noticed.
// Proves S12.
func TestKubeconfigFilesAreReadByTheCaller(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "hook.conf")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {certificate-authority: ca.crt, server: " +
		"'https://example.com'}}]\n" +
		"users: [{name: u, user: {client-certificate: c.crt, client-key: c.key}}]\ncontexts: [{name: a, context: " +
		"{cluster: a, user: u}}]\ncurrent-context: a\n"
	var read []string
	_, _ = New(
		[]byte(text),
		path,
		time.Second,
		func(file string) ([]byte, error) { // their content does not matter here
			read = append(read, filepath.Base(file))
			return []byte("x"), nil
		},
	)
	if strings.Join(read, " ") != "ca.crt c.crt c.key" {
		t.Errorf("read are %q", read)
	}
}
