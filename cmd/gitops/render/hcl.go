package render

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/hcl/load"
	"clusterctl/provision/workload"
)

// Bounds of an evaluation of the configuration language, which is a process of its own.
const (
	hclProcesses = 2
	hclTimeout   = time.Minute
	hclCPU       = 60         // seconds of CPU
	hclMemory    = 384 << 20  // bytes of data
	hclOutput    = 64 << 20   // bytes of the objects as JSON
	hclErrors    = 20         // errors of a configuration that are reported
	maxProblem   = 16 << 10   // bytes of a message of the process
	hclGoMemory  = "256MiB"   // from which Go collects garbage more often
	hclCommand   = "eval-hcl" // first argument of the process
)

// HCL renders files of the configuration language to the objects that `clusterctl apply` would apply. Evaluations can
// use much memory and time, and libraries may have mistakes. They run in a process that ends with them.
type HCL struct {
	program []string // and its first arguments
	dir     string   // for files of a running evaluation
	slots   chan struct{}
	tenants chan struct{} // sources outside of kube-system, which leave one slot to the others
}

// NewHCL returns a renderer whose processes are this program, run with the arguments of EvaluateHCL. dir is a directory
// for temporary files.
func NewHCL(dir string) (*HCL, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &HCL{program: []string{self, hclCommand}, dir: dir, slots: make(chan struct{}, hclProcesses),
		tenants: make(chan struct{}, hclProcesses-1)}, nil
}

// IsHCLCommand reports whether a program was started to evaluate the configuration language.
func IsHCLCommand(args []string) bool { return len(args) > 1 && args[1] == hclCommand }

// render returns the objects of a source.
func (h *HCL) render(ctx context.Context, s *gitops.Source, from gitops.Snapshot) ([]gitops.Object, error) {
	if h == nil {
		return nil, errors.New("this program does not evaluate the configuration language")
	}
	for _, slots := range []chan struct{}{h.tenants, h.slots} {
		if slots == h.tenants && s.Namespace == gitsource.Namespace {
			continue
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	root := gitops.Folder(s.Spec.Path)
	dir, err := os.MkdirTemp(h.dir, "hcl-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := copyFiles(ctx, from.Files, root, dir); err != nil {
		return nil, err
	}
	answer, err := h.evaluate(ctx, dir, root)
	if err != nil {
		return nil, err
	}
	if answer.Problem != "" {
		return nil, errors.New(answer.Problem)
	}
	objects := make([]gitops.Object, 0, len(answer.Objects))
	for _, o := range answer.Objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.Content); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", o.File, o.Line, err)
		}
		if len(o.Content) > gitops.MaxObject {
			return nil, fmt.Errorf("%s:%d: the object has %d bytes, and at most %d are allowed", o.File, o.Line,
				len(o.Content), gitops.MaxObject)
		}
		objects = append(objects, gitops.Object{Unstructured: u, File: o.File, Line: o.Line})
	}
	return objects, nil
}

// copyFiles copies the files of a folder into a directory, and all files of the repository if a configuration in the
// folder refers to others.
func copyFiles(ctx context.Context, files fs.FS, root, dir string) error {
	info, err := fs.Stat(files, root)
	if err != nil || !info.IsDir() {
		return fmt.Errorf("the repository has no folder %q; see spec.path", root)
	}
	budget := gitops.NewBudget()
	leaves := false
	if err := copyTree(ctx, files, root, dir, "", budget, &leaves); err != nil || !leaves || root == "." {
		return err
	}
	return copyTree(ctx, files, ".", dir, root, budget, &leaves)
}

// copyTree copies the files below a folder except those below skip. It sets leaves if a configuration may refer to
// files outside of the folder. Symbolic links are left out, so that reading one is an error.
func copyTree(ctx context.Context, files fs.FS, root, dir, skip string, budget *gitops.Budget, leaves *bool) error {
	return fs.WalkDir(files, root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && (d.Name() == ".git" || skip != "" && name == skip):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, filepath.FromSlash(name)), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := budget.ReadFile(files, name)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, load.Extension) && bytes.Contains(text, []byte("..")) {
			*leaves = true
		}
		return os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), text, 0o600)
	})
}

// hclAnswer is what the process returns.
type hclAnswer struct {
	Problem string      `json:"problem,omitempty"`
	Objects []hclObject `json:"objects,omitempty"`
}

type hclObject struct {
	File    string          `json:"file"`
	Line    int             `json:"line"`
	Content json.RawMessage `json:"content"`
}

// evaluate runs the process for a folder below a directory.
func (h *HCL) evaluate(ctx context.Context, dir, root string) (answer hclAnswer, err error) {
	limited, cancel := context.WithTimeout(ctx, hclTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, h.program[0], append(h.program[1:], dir, root)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, []string{"GOMEMLIMIT=" + hclGoMemory, "GOTRACEBACK=none"}, time.Second
	out, problems := &boundedBuffer{max: hclOutput}, &boundedBuffer{max: maxProblem}
	cmd.Stdout, cmd.Stderr = out, problems
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return answer, ctx.Err()
	case limited.Err() != nil:
		return answer, fmt.Errorf("the evaluation takes more than %s", hclTimeout)
	case out.isFull:
		return answer, fmt.Errorf("the objects have more than %d bytes", hclOutput)
	case err != nil && (strings.Contains(problems.String(), "out of memory") ||
		strings.Contains(problems.String(), "cannot allocate memory")):
		return answer, fmt.Errorf("the evaluation needs more than %d MiB of memory", hclMemory>>20)
	case err != nil:
		return answer, fmt.Errorf("the evaluation ends with %w", err)
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return answer, fmt.Errorf("read the objects: %w", err)
	}
	return answer, nil
}

// boundedBuffer holds the beginning of what is written to it. Writing more is an error, which ends the process.
type boundedBuffer struct {
	bytes.Buffer
	max    int
	isFull bool
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		b.isFull = true
		return 0, io.ErrShortBuffer
	}
	return b.Buffer.Write(p)
}

// EvaluateHCL is the main function of the process. args are those of the program: its name, the command, a directory,
// and a folder below it. It writes an answer to out.
func EvaluateHCL(args []string, out io.Writer) error {
	if len(args) != 4 {
		return fmt.Errorf("usage: %s DIRECTORY FOLDER", hclCommand)
	}
	for resource, limit := range map[int]uint64{unix.RLIMIT_DATA: hclMemory, unix.RLIMIT_CPU: hclCPU,
		unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit resource %d of the process: %w", resource, err)
		}
	}
	objects, err := evaluateFolder(args[2], args[3])
	answer := hclAnswer{Objects: objects}
	if err != nil {
		answer = hclAnswer{Problem: strings.ReplaceAll(err.Error(), args[2]+"/", "")}
	}
	return json.NewEncoder(out).Encode(answer)
}

// evaluateFolder returns the objects of a folder below a directory.
func evaluateFolder(dir, folder string) ([]hclObject, error) {
	at := filepath.Join(dir, filepath.FromSlash(path.Clean("/"+folder)))
	c, diags := load.Load(load.Options{Path: at, Root: dir, WorkloadObjects: workload.ObjectsOf})
	if diags.HasErrors() {
		var texts []string
		for _, err := range diags.Errs() {
			if len(texts) == hclErrors {
				texts = append(texts, "and more")
				break
			}
			texts = append(texts, err.Error())
		}
		return nil, errors.New(strings.Join(texts, "\n"))
	}
	if len(c.Cluster.Deferred) > 0 {
		return nil, fmt.Errorf("%s depends on values that are not known", strings.Join(c.Cluster.Deferred, ", "))
	}
	list, err := workload.DeclaredObjects(c.Cluster, gitsource.Manager)
	if err != nil {
		return nil, err
	}
	if len(list) > gitops.MaxObjects {
		return nil, fmt.Errorf("the folder has more than %d objects", gitops.MaxObjects)
	}
	objects := make([]hclObject, 0, len(list))
	for _, d := range list {
		annotate(d)
		text, err := d.Object.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("%s: encode the object: %w", d.Address, err)
		}
		file := strings.TrimPrefix(d.Source.File, dir+"/")
		if file == "" { // a namespace that objects need
			file = folder
		}
		objects = append(objects, hclObject{File: file, Line: d.Source.Line, Content: text})
	}
	return objects, nil
}

// annotate writes what the engine of apply knows of an object into the annotations that the controller reads.
func annotate(d workload.Desired) {
	annotations := d.Object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	set := func(name, value string) {
		if _, isDeclared := annotations[name]; !isDeclared {
			annotations[name] = value
		}
	}
	if d.Wave > 0 {
		set(gitsource.WaveAnnotation, strconv.Itoa(d.Wave))
	}
	if d.IsNeverPruned || d.IsProtected {
		set(gitsource.PruneAnnotation, gitsource.Disabled)
	}
	if len(annotations) > 0 {
		d.Object.SetAnnotations(annotations)
	}
}
