package render

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/cmd/gitops/limit"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Bounds of a process that renders a source.
const (
	maxProcesses    = 2 // that render at the same time
	processTimeout  = time.Minute
	processCPU      = 60               // seconds of CPU
	processMemory   = 384 << 20        // bytes of data
	processOutput   = 64 << 20         // bytes of the objects as JSON
	maxProblem      = 16 << 10         // bytes of a message of the process
	processGoMemory = "256MiB"         // from which Go collects garbage more often
	processIdle     = 30 * time.Second // after which a process without a task ends
	processCommand  = "render"         // first argument of the process
)

// Processes render sources in other processes. Templates, overlays and configurations can use much memory and time, and
// the libraries neither limit that nor can be interrupted. Here a source that takes too much fails alone. Sources of a
// namespace share a process, one after the other, because starting one takes longer than most tasks.
type Processes struct {
	program []string // and its first arguments
	dir     string   // for files of a running evaluation
	slots   chan struct{}
	tenants chan struct{} // sources outside of kube-system, which leave one slot to the others

	mu      sync.Mutex
	idle    []*process
	started int // processes
}

// NewProcesses returns processes that are this program, run with the argument of IsProcess. dir is a directory for
// temporary files.
func NewProcesses(dir string) (*Processes, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &Processes{program: []string{self, processCommand}, dir: dir, slots: make(chan struct{}, maxProcesses),
		tenants: make(chan struct{}, maxProcesses-1)}, nil
}

// IsProcess reports whether a program was started to render a source, with RunProcess.
func IsProcess(args []string) bool { return len(args) > 1 && args[1] == processCommand }

// task is what a process renders.
type task struct {
	Renderer    string
	Folder      string
	Dir         string // with the files of a configuration
	Name        string // of the source
	Namespace   string // of objects that name none
	KubeVersion string
	Helm        []byte   // settings as JSON
	Values      [][]byte // of ConfigMaps and Secrets, as YAML
}

// answer is what a process returns.
type answer struct {
	Problem string
	Objects []renderedObject
	IsLast  bool // the process ends, because it has used much memory
}

type renderedObject struct {
	File    string
	Line    int
	Content []byte // JSON
}

// newAnswer returns the answer with objects, or with an error.
func newAnswer(objects []gitops.Object, err error) answer {
	var a answer
	for _, o := range objects {
		text, wrong := o.MarshalJSON()
		if wrong != nil {
			return answer{Problem: fmt.Sprintf("%s:%d: encode the object: %v", o.File, o.Line, wrong)}
		}
		a.Objects = append(a.Objects, renderedObject{o.File, o.Line, text})
	}
	if err != nil {
		return answer{Problem: err.Error()}
	}
	return a
}

// objects decodes the objects of an answer.
func (a answer) objects() ([]gitops.Object, error) {
	if a.Problem != "" {
		return nil, errors.New(a.Problem)
	}
	objects := make([]gitops.Object, 0, len(a.Objects))
	for _, o := range a.Objects {
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

// occupy waits for a slot of a namespace. The caller calls release.
func (p *Processes) occupy(ctx context.Context, namespace string) (release func(), err error) {
	var taken []chan struct{}
	release = func() {
		for _, slots := range taken {
			<-slots
		}
	}
	for _, slots := range []chan struct{}{p.tenants, p.slots} {
		if slots == p.tenants && namespace == gitsource.Namespace {
			continue
		}
		select {
		case slots <- struct{}{}:
			taken = append(taken, slots)
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}

// run runs a task for a source of a namespace. The process reads files of the source through this function.
func (p *Processes) run(ctx context.Context, namespace string, files fs.FS, t task) ([]gitops.Object, error) {
	if p == nil {
		return nil, errors.New("this program renders nothing but manifests")
	}
	release, err := p.occupy(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer release()
	if t.Renderer == gitsource.RendererHCL {
		if t.Dir, err = os.MkdirTemp(p.dir, "hcl-*"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(t.Dir)
		if err := copyFiles(ctx, files, t.Folder, t.Dir); err != nil {
			return nil, err
		}
	}
	worker, err := p.take(namespace)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	stopKilling := context.AfterFunc(limited, worker.kill)
	worker.output.N = processOutput
	s := &fileServer{files: files, in: worker.encoder, out: worker.decoder}
	a, failed := s.serve(t)
	problems := ""
	if isAlive := stopKilling() && failed == nil; isAlive && !a.IsLast {
		p.keep(worker)
	} else {
		if !isAlive {
			worker.kill()
		}
		err = worker.end()
		problems = worker.problems.String()
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.unreadable != nil:
		return nil, s.unreadable
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("rendering takes more than %s", processTimeout)
	case strings.Contains(problems, "out of memory"), strings.Contains(problems, "cannot allocate memory"):
		return nil, fmt.Errorf("rendering needs more than %d MiB of memory", processMemory>>20)
	case failed != nil:
		return nil, fmt.Errorf("rendering ends with %w", errors.Join(err, failed))
	}
	return a.objects()
}

// boundedBuffer holds the beginning of what is written to it. Writing more is an error.
type boundedBuffer struct {
	bytes.Buffer
	max int
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		return 0, io.ErrShortBuffer
	}
	return b.Buffer.Write(p)
}

// RunProcess is the main function of a process: it reads tasks, and writes the answer of each. Between them it asks for
// files.
func RunProcess(in io.Reader, out io.Writer) error {
	if err := limit.Process(processMemory); err != nil {
		return err
	}
	if err := Isolate(); err != nil {
		return err
	}
	files := &askedFiles{in: gob.NewDecoder(in), out: gob.NewEncoder(out)}
	for {
		var t task
		if err := files.in.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the task: %w", err)
		}
		if err := limitCPU(); err != nil {
			return fmt.Errorf("limit the CPU time of the task: %w", err)
		}
		a := t.answer(files)
		if err := files.out.Encode(question{Answer: &a}); err != nil || a.IsLast {
			return err
		}
	}
}

// limitCPU limits the CPU time of the next task.
func limitCPU() error {
	var limit unix.Rlimit
	var used unix.Rusage
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &limit); err != nil {
		return err
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, uint64(used.Utime.Sec+used.Stime.Sec+1)+processCPU)
	return unix.Setrlimit(unix.RLIMIT_CPU, &limit)
}

// answer renders the task in this process.
func (t task) answer(files fs.FS) answer {
	objects, err := t.render(context.Background(), files)
	a := newAnswer(objects, err)
	size := 0
	for _, o := range a.Objects {
		if size += len(o.File) + len(o.Content) + 16; size > processOutput/2 {
			a = answer{Problem: fmt.Sprintf("the objects have more than %d bytes", processOutput/2)}
			break
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	a.IsLast = memory.Sys > processMemory/3 // a further task must have as much as in a new process
	return a
}

// render renders the task in this process.
func (t task) render(ctx context.Context, files fs.FS) ([]gitops.Object, error) {
	switch t.Renderer {
	case gitsource.RendererKustomize:
		return renderKustomize(ctx, t.Folder, files)
	case gitsource.RendererHelm:
		return renderHelm(ctx, t, files)
	case gitsource.RendererHCL:
		return renderHCL(t)
	}
	return nil, fmt.Errorf("there is no renderer %q", t.Renderer)
}
