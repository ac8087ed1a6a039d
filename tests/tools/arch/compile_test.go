package arch

import (
	"os/exec"
	"strings"
	"testing"
)

// unwantedImports are prefixes of packages that programs do not import, with their replacements. These packages take
// long to compile, or link all versions of all kinds into a program. Tests may import them.
var unwantedImports = map[string]string{
	"k8s.io/client-go/informers":                   "daemons/client/informers",
	"k8s.io/client-go/kubernetes":                  "kube/kubernetes and kube/scheme",
	"k8s.io/client-go/discovery":                   "kube/discovery",
	"k8s.io/client-go/restmapper":                  "kube/discovery",
	"k8s.io/client-go/applyconfigurations":         "daemons/apiserver/managed",
	"k8s.io/client-go/tools/leaderelection":        "daemons/client",
	"k8s.io/client-go/util/certificate":            "daemons/kubelet",
	"k8s.io/pod-security-admission/admission/test": "nothing: it is for tests",
}

func TestProgramsImportNothingLarge(t *testing.T) {
	cmd := exec.Command("go", "list", "-tags", "grpcnotrace", "-deps", "./cmd/...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		for prefix, instead := range unwantedImports {
			if path == prefix || strings.HasPrefix(path, prefix+"/") {
				t.Errorf("cmd/... imports %s: use %s", path, instead)
			}
		}
		if strings.HasPrefix(path, "k8s.io/client-go/") && strings.HasSuffix(path, "/fake") {
			t.Errorf("cmd/... imports %s, which is for tests", path)
		}
	}
}
