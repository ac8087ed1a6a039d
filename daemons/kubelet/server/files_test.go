package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/daemons/kubelet/logs"
)

// Proves S08.
func TestServedFilesStayInTheLogDirectory(t *testing.T) {
	root, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "d_p_u", "main"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(root, "d_p_u/main/0.log")); err != nil {
		t.Fatal(err)
	}
	s := &Server{Config: Config{Logs: logs.Dir(filepath.Join(root, "d_p_u"))}}
	w := httptest.NewRecorder()
	s.serveFiles(w, httptest.NewRequest("GET", "/d_p_u/main/0.log", nil))
	if w.Code == http.StatusOK || strings.Contains(w.Body.String(), "one") {
		t.Errorf("served with %d: %q", w.Code, w.Body)
	}
}
