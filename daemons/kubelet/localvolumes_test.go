package kubelet

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func TestLocalVolumesAreRemovedOnRequest(t *testing.T) {
	n := newNode(t)
	k := n.newKubelet()
	routes := k.newServer().Routes()
	at := filepath.Join(n.cfg.RootDir, "local-volumes", "pvc-1")
	if err := os.MkdirAll(filepath.Join(at, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/localVolumes/pvc-1", http.StatusMethodNotAllowed},
		{"DELETE", "/localVolumes", http.StatusNotFound},
		{"DELETE", "/localVolumes/PVC", http.StatusBadRequest},
		{"DELETE", "/localVolumes/..%2F..%2Fpods", http.StatusBadRequest},
		{"DELETE", "/localVolumes/pvc-1", http.StatusOK},
		{"DELETE", "/localVolumes/pvc-1", http.StatusOK}, // repeating the request succeeds, because the volume is gone
	} {
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.want {
			t.Errorf("%s %s is answered by %d %s, want %d", c.method, c.path, w.Code, w.Body, c.want)
		}
		if _, err := os.Stat(at); c.want != http.StatusOK && err != nil {
			t.Errorf("after %s %s: %v", c.method, c.path, err)
		}
	}
	if _, err := os.Stat(at); !os.IsNotExist(err) {
		t.Errorf("the volume is there still: %v", err)
	}
}
