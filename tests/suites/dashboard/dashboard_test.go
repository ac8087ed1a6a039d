// Package dashboard tests the dashboard's pages in Debian's Chromium, over a development cluster (`clusterctl dev`) and
// over a stub of the API server for what simulated nodes cannot do: logs and terminals.
package dashboard

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/tests/lab/cluster"
)

// screenshots is a directory in which the tests write a picture of every page; empty: none.
var screenshots = os.Getenv("CLUSTERCTL_SCREENSHOTS")

// TestMain sets these for all tests.
var (
	program       string // clusterctl under test
	workDir       string
	admin         string // kubeconfig of the cluster's administrator
	client        *kubernetes.Clientset
	dynamicClient *dynamic.DynamicClient
	board         *server // dashboard of the administrator
	chromium      context.Context
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if workDir, err = os.MkdirTemp("", "clusterctl-dashboard-test-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(workDir)
	if program, err = findProgram(); err != nil {
		return 1, err
	}
	stopCluster, kubeconfig, err := startCluster(3)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stopCluster()) }()
	admin = kubeconfig
	if err := connect(); err != nil {
		return 1, err
	}
	if err := createObjects(context.Background()); err != nil {
		return 1, fmt.Errorf("create the objects that the tests look at: %w", err)
	}
	if board, err = startDashboard(admin); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, board.stop()) }()
	stopChromium, err := startChromium()
	if err != nil {
		return 1, err
	}
	defer stopChromium()
	return m.Run(), nil
}

func connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		return err
	}
	config.QPS = -1
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	dynamicClient, err = dynamic.NewForConfig(rest.CopyConfig(config))
	return err
}

// findProgram returns the program under test, with etcd beside it. It uses the built bundle, or builds the programs.
func findProgram() (string, error) {
	if built, err := cluster.DeclaredBundle(); built != "" || err != nil {
		return filepath.Join(built, "clusterctl"), err
	}
	for _, name := range []string{"etcd", "clusterctl"} {
		cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w", "-o",
			filepath.Join(workDir, name), "./cmd/"+name)
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return filepath.Join(workDir, "clusterctl"), nil
}

// startTimeout limits the start of a program. It is much longer than normal, because the machine may be busy.
const startTimeout = time.Minute

// child is a program that runs until it is stopped. Its output is read line by line.
type child struct {
	name  string
	cmd   *exec.Cmd
	input io.WriteCloser
	lines chan string
	log   string // file with what it writes to stderr
}

func startChild(name string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.Command(program, args...), lines: make(chan string, 16)}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	log, err := os.CreateTemp(workDir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.log, c.cmd.Stderr = log.Name(), log
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(c.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
	}()
	return c, nil
}

// find returns what follows mark in the next line that contains it.
func (c *child) find(mark string) (string, error) {
	limit := time.After(startTimeout)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				text, _ := os.ReadFile(c.log)
				return "", fmt.Errorf("%s has ended:\n%s", c.name, text)
			}
			if at := strings.Index(line, mark); at >= 0 {
				return line[at+len(mark):], nil
			}
		case <-limit:
			return "", fmt.Errorf("%s does not print %q", c.name, mark)
		}
	}
}

// stop interrupts the program. It returns an error if the program does not end well.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("end %s: %w", c.name, err)
	}
	forced := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer forced.Stop()
	for range c.lines { // so that the program is not blocked by what it prints
	}
	if err := c.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(c.log)
		return fmt.Errorf("%s did not end well: %w\n%s", c.name, err, text)
	}
	return nil
}

// startCluster runs a development cluster, and returns the path of its administrator's kubeconfig.
func startCluster(nodes int) (stop func() error, kubeconfig string, err error) {
	data, err := os.MkdirTemp(workDir, "data-")
	if err != nil {
		return nil, "", err
	}
	c, err := startChild("dev", "dev", "--nodes", fmt.Sprint(nodes), "--data", data, "--metric-resolution", "1s")
	if err != nil {
		return nil, "", err
	}
	if kubeconfig, err = c.find("KUBECONFIG="); err != nil {
		return nil, "", errors.Join(err, c.stop())
	}
	return c.stop, kubeconfig, nil
}

// server is a dashboard. Each link signs in once.
type server struct {
	*child
	base string // such as http://127.0.0.1:41231

	mu    sync.Mutex
	first string // the link that it printed at its start
}

func startDashboard(kubeconfig string) (*server, error) {
	c, err := startChild("dashboard", "dashboard", "--no-browser", "--kubeconfig", kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &server{child: c}
	link, err := c.find("http://")
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	s.first = "http://" + link
	s.base, _, _ = strings.Cut(s.first, "/signin")
	return s, nil
}

// link returns a link that signs in.
func (s *server) link() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if link := s.first; link != "" {
		s.first = ""
		return link, nil
	}
	if _, err := io.WriteString(s.input, "\n"); err != nil {
		return "", err
	}
	link, err := s.find("http://")
	return "http://" + link, err
}
