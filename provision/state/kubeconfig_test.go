package state_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/provision/state"
)

// Kubeconfigs that are issued at the same time, and after an interrupted write, are all recorded.
// Proves P04.
func TestIssuedKubeconfigsAreRecorded(t *testing.T) {
	dir := t.TempDir()
	if list, err := state.IssuedKubeconfigs(dir); err != nil || len(list) != 0 {
		t.Errorf("before anything: %v, %v", list, err)
	}
	done := make(chan error)
	for range 8 {
		go func() {
			done <- state.RecordKubeconfig(dir, state.IssuedKubeconfig{Name: "alice", Serial: "a", At: time.Now()})
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "kubeconfigs.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"name":"nobody","ser`)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := state.RecordKubeconfig(dir, state.IssuedKubeconfig{Name: "bob"}); err != nil {
		t.Fatal(err)
	}
	list, err := state.IssuedKubeconfigs(dir)
	if err != nil || len(list) != 9 || list[8].Name != "bob" {
		t.Errorf("%v, %v", list, err)
	}
}
