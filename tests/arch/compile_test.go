package arch

import (
	"os/exec"
	"strings"
	"testing"
)

// Some packages take so long to compile that a first build would cost a quarter more. Tests may import them.
func TestProgramsImportNothingThatIsSlowToCompile(t *testing.T) {
	cmd := exec.Command("go", "list", "-tags", "grpcnotrace", "-deps", "./cmd/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		switch {
		case path == "k8s.io/client-go/informers" || strings.HasPrefix(path, "k8s.io/client-go/informers/"):
			t.Errorf("cmd/... imports %s: use daemons/client/informers", path)
		case strings.HasPrefix(path, "k8s.io/client-go/") && strings.HasSuffix(path, "/fake"):
			t.Errorf("cmd/... imports %s, which is for tests", path)
		}
	}
}
