package render

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// TestMain renders a source where a test has started this program for it.
func TestMain(m *testing.M) {
	if IsProcess(os.Args) {
		if err := RunProcess(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// renderHCLFiles renders the folder of a repository with these files.
func renderHCLFiles(t *testing.T, folder string, files map[string]string) ([]gitops.Object, error) {
	t.Helper()
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return renderHCLTree(t, folder, tree)
}

func renderHCLTree(t *testing.T, folder string, tree fs.FS) ([]gitops.Object, error) {
	t.Helper()
	evaluator, err := NewProcesses(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &gitops.Source{Spec: gitsource.Spec{Path: folder}}
	return Renderer{Processes: evaluator}.Render(t.Context(), s, gitops.Snapshot{Revision: "r", Files: tree}, nil)
}

// homeFiles are the files of a repository with a folder of the configuration language.
var homeFiles = map[string]string{
	"clusters/home/web.hcl": `
variable "replicas" {
  default = 2
}

module "page" {
  source = "../../modules/page"
  text   = file("${path.module}/motd.txt")
}

workload "web" {
  namespace  = "shop"
  replicas   = var.replicas
  depends_on = [object.v1.ConfigMap.settings]
  container "web" {
    image = "registry.example/web:1"
    ports = { http = 80 }
  }
  service {
    ports = { http = 80 }
  }
}

object "v1" "ConfigMap" "settings" {
  data = { from = path.module, files = join(",", fileset(path.module, "*.txt")) }
  lifecycle {
    prevent_destroy = true
  }
}

manifests "more" {
  files = ["/manifests/*.yaml"]
}
`,
	"clusters/home/motd.txt": "hello",
	"modules/page/page.hcl": "variable \"text\" {}\n" +
		"object \"v1\" \"ConfigMap\" \"page\" {\n  data = { text = var.text }\n}\n",
	"manifests/more.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n",
	"clusters/other/bad.hcl":  "machine \"x\" {}\n",
	"manifests/other/x.yaml":  "not a manifest",
	"clusters/home/.hidden.x": "x",
}

// Proves P06.
func TestHCLIsRenderedToTheObjectsOfApply(t *testing.T) {
	objects, err := renderHCLFiles(t, "clusters/home", homeFiles)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		text := o.ID().String()
		for _, a := range []string{gitsource.WaveAnnotation, gitsource.PruneAnnotation} {
			if v, ok := o.GetAnnotations()[a]; ok {
				text += " " + a + "=" + v
			}
		}
		if o.GetLabels()["app.kubernetes.io/managed-by"] != gitsource.Manager {
			t.Errorf("%s has the labels %v", text, o.GetLabels())
		}
		got = append(got, text+" "+o.File)
	}
	slices.Sort(got)
	want := []string{
		"apps/v1 Deployment shop/web gitops.clusterctl.local/wave=1 clusters/home/web.hcl",
		"v1 ConfigMap more manifests/more.yaml",
		"v1 ConfigMap page-page modules/page/page.hcl",
		"v1 ConfigMap settings gitops.clusterctl.local/prune=disabled clusters/home/web.hcl",
		"v1 Namespace shop gitops.clusterctl.local/prune=disabled clusters/home",
		"v1 Service shop/web gitops.clusterctl.local/wave=1 clusters/home/web.hcl",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, o := range objects {
		data, _ := o.Object["data"].(map[string]any)
		switch o.GetName() {
		case "settings":
			if data["from"] != "/clusters/home" || data["files"] != "motd.txt" {
				t.Errorf("the paths are %v", data)
			}
		case "page-page":
			if data["text"] != "hello" {
				t.Errorf("the text is %v", data)
			}
		}
	}
}

func TestHCLOfAClusterIsRefusedWithItsLine(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"cluster \"home\" {}", "a.hcl:2,1-15: Block of a cluster"},
		{"machine \"x\" {\n  address = \"10.0.0.1\"\n}", "a.hcl:2,1-12: Block of a cluster"},
		{"image \"x\" {\n  archive = \"x.tar\"\n}", "a.hcl:2,1-10: Block of a cluster"},
		{"load_balancer \"x\" {}", "a.hcl:2,1-18: Block of a cluster"},
		{"provider \"x\" {}", "a.hcl:2,1-9: "},
		{"moved {\n  from = workload.a\n  to = workload.b\n}", "a.hcl:2,1-6: Block of a cluster"},
		{"module \"m\" {\n  source = \"./m\"\n}", "m/m.hcl:1,1-12: Block of a cluster"},
		{"module \"m\" {\n  source = \"git::https://git.example/x\"\n}", "nothing is fetched"},
		{"module \"m\" {\n  source = \"../../../../etc\"\n}", "the repository has no folder /etc"},
		{"data \"external\" \"x\" {\n  program = [\"true\"]\n}", "depend on its files only"},
		{"data \"object\" \"x\" {\n  api_version = \"v1\"\n  kind = \"Secret\"\n  name = \"x\"\n}",
			"depend on its files only"},
		{"locals {\n  x = timestamp()\n}", "its result differs each time"},
		{"locals {\n  x = uuid()\n}", "its result differs each time"},
		{"locals {\n  x = pathexpand(\"~\")\n}", "no home directory"},
		{"locals {\n  x = file(\"/etc/passwd\")\n}", "no such file"},
		{"locals {\n  x = file(\"../../../../../../etc/passwd\")\n}", "no such file"},
		{"locals {\n  x = file(\"~/.ssh/id_ed25519\")\n}", "no such file"},
		{"locals {\n  x = templatefile(\"/proc/self/environ\", {})\n}", "no such file"},
		{"locals {\n  x = fileset(\"/\", \"../../../../etc/pass*\")\n}", "leads out of the repository"},
		{"locals {\n  x = fileset(\"/etc\", \"*\")\n}", "no such file"},
		{"locals {\n  x = file(\"link\")\n}", "no such file"},
		{"manifests \"x\" {\n  files = [\"/../../../etc/*.conf\"]\n}", "No such manifest"},
		{"manifests \"x\" {\n  files = [\"{.,x}{.,x}/{.,x}{.,x}/{.,x}{.,x}/etc/host*\"]\n}", "o"},
		{"variable \"x\" {}\nlocals {\n  x = var.x\n}", "a.hcl:2"},
		{"workload \"w\" {\n  container \"c\" {\n    image = \"x\"\n  }\n  lifecycle {\n    " +
			"ignore_changes = all\n  }\n}", "a.hcl:2"},
	} {
		tree := fstest.MapFS{"app/a.hcl": {Data: []byte("# a line\n" + row.text + "\n"), Mode: 0o644},
			"app/m/m.hcl": {Data: []byte("machine \"x\" {}\n"), Mode: 0o644},
			"app/link":    {Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink | 0o777}}
		_, err := renderHCLTree(t, "app", tree)
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "root:") {
			t.Errorf("%s\n%v\nwant %s", row.text, err, row.want)
		} else if strings.Contains(err.Error(), os.TempDir()) {
			t.Errorf("%s\nthe error names a temporary file: %v", row.text, err)
		}
	}
}

// An evaluation that takes too much ends alone.
func TestHugeHCLIsBounded(t *testing.T) {
	double := "locals {\n  a0 = \"0123456789abcdef\"\n"
	for i := range 40 {
		double += fmt.Sprintf("  a%d = \"${local.a%d}${local.a%d}\"\n", i+1, i, i)
	}
	start := time.Now()
	_, err := renderHCLFiles(t, "", map[string]string{"a.hcl": double + "}\n"})
	if err == nil || !strings.Contains(err.Error(), "MiB of memory") {
		t.Errorf("text that doubles: %v", err)
	}
	many := "object \"v1\" \"ConfigMap\" \"x\" {\n  count = 20000\n}\n"
	if _, err = renderHCLFiles(t, "", map[string]string{"a.hcl": many}); err == nil {
		t.Error("20,000 objects are accepted")
	}
	large := map[string]string{"a.hcl": "locals {}\n"}
	for i := range 5 {
		large[fmt.Sprintf("f%d", i)] = strings.Repeat("x", gitops.MaxFileBytes)
	}
	if _, err = renderHCLFiles(t, "", large); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a large folder: %v", err)
	}
	if _, err = renderHCLFiles(t, "", map[string]string{"a.hcl": strings.Repeat("locals { x = ", 1000)}); err == nil {
		t.Error("a syntax error is accepted")
	}
	deep := "locals {\n  x = " + strings.Repeat("(", 3_000_000) + "\n}\n"
	if _, err = renderHCLFiles(t, "", map[string]string{"a.hcl": deep}); err == nil {
		t.Error("an expression of a great depth is accepted")
	}
	if took := time.Since(start); took > 2*processTimeout {
		t.Errorf("the evaluations took %s", took)
	}
	evaluator, err := NewProcesses(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tree := fstest.MapFS{"a.hcl": {Data: []byte("locals {}\n"), Mode: 0o644}}
	_, err = Renderer{Processes: evaluator}.Render(ctx, &gitops.Source{}, gitops.Snapshot{Files: tree}, nil)
	if err == nil {
		t.Error("an evaluation goes on after its context has ended")
	}
}

func TestHCLIsDetectedWhereThereAreNoManifests(t *testing.T) {
	for _, row := range []struct {
		files []string
		want  string
	}{
		{[]string{"a.hcl"}, gitsource.RendererHCL},
		{[]string{"a.hcl", "sub/b.yaml", "README.md"}, gitsource.RendererHCL},
		{[]string{"a.hcl", "b.yaml"}, gitsource.RendererYAML},
		{[]string{".terraform.lock.hcl"}, gitsource.RendererYAML},
		{[]string{"a.hcl", "kustomization.yaml"}, gitsource.RendererKustomize},
		{[]string{"a.hcl", "Chart.yaml"}, gitsource.RendererHelm},
	} {
		tree := fstest.MapFS{}
		for _, name := range row.files {
			tree[name] = &fstest.MapFile{Mode: 0o644}
		}
		if got, err := detect(&gitops.Source{}, tree); err != nil || got != row.want {
			t.Errorf("%q: %s, %v", row.files, got, err)
		}
	}
}
