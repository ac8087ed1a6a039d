package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	proxyAddress = "10.10.0.1"       // address of the ingress proxy
	podNetwork   = "10.128.0.0/11"   // network of the development cluster's pods
	poolNetwork  = "198.51.100.0/24" // pool of load balancer addresses
	className    = "clusterctl"
)

// startCluster starts everything and returns the path of the administrator's kubeconfig.
func startCluster(t *testing.T) string {
	bundle := os.Getenv("CLUSTERCTL_BUNDLE")
	if bundle == "" {
		t.Fatal("CLUSTERCTL_BUNDLE has to name the folder of clusterctl and etcd: run `make conformance-gateway`")
	}
	for _, words := range []string{
		"link set lo up", "address add " + proxyAddress + "/32 dev lo", "route add local " + podNetwork + " dev lo",
		"route add local " + poolNetwork + " dev lo",
	} {
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s", words, out)
		}
	}
	dir := t.TempDir()
	kubeconfig := startDev(t, bundle, dir)
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kinds := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(kinds), apiextensionsv1.AddToScheme(kinds),
		gatewayv1.Install(kinds)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	createObjects(t, c)
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	serveEchoes(t, clients)
	proxy := userKubeconfig(t, kubeconfig, dir, "system:kube-proxy")
	runDaemon(t, bundle, dir, "kube-proxy", "--kubeconfig", proxy, "--hostname-override", "node-1", "--cluster-cidr",
		podNetwork)
	runDaemon(t, bundle, dir, "kube-ingress", "--kubeconfig",
		userKubeconfig(t, kubeconfig, dir, "system:kube-ingress:node-1",
			"system:kube-ingress"), "--node-name", "node-1", "--node-ip", proxyAddress,
		"--service-name", "kube-system/kube-ingress", "--gateway-addresses", "load_balancer")
	// The suite reads from the class which features to test.
	accepted := &gatewayv1.GatewayClass{}
	for until := time.Now().Add(time.Minute); len(accepted.Status.SupportedFeatures) == 0; time.Sleep(
		50 * time.Millisecond) {
		if err := c.Get(t.Context(), client.ObjectKey{Name: className}, accepted); err != nil ||
			time.Now().After(until) {
			t.Fatalf("the GatewayClass has no features: %+v, %v", accepted.Status, err)
		}
	}
	return kubeconfig
}

func startDev(t *testing.T, bundle, dir string) (kubeconfig string) {
	cmd := exec.Command(filepath.Join(bundle, "clusterctl"), "dev", "--nodes", "2", "--data",
		filepath.Join(dir, "data"))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopProcess(cmd) })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, path, ok := strings.Cut(lines.Text(), "KUBECONFIG="); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return path
		}
	}
	t.Fatal("the cluster did not start")
	return ""
}

func stopProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	forced := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	forced.Stop()
}

// runDaemon runs one of clusterctl's daemons beside the cluster.
func runDaemon(t *testing.T, bundle, dir, name string, args ...string) {
	link := filepath.Join(dir, name)
	if err := os.Symlink(filepath.Join(bundle, "clusterctl"), link); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(os.TempDir(), "conformance-gateway-"+name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopProcess(cmd) })
	t.Logf("%s logs to %s", name, log.Name())
}

// userKubeconfig writes a kubeconfig that has only the rights of a user.
func userKubeconfig(t *testing.T, kubeconfig, dir, user string, groups ...string) string {
	cfg, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range cfg.AuthInfos {
		a.Impersonate, a.ImpersonateGroups = user, groups
	}
	path := filepath.Join(dir, strings.ReplaceAll(user, ":", "-")+".conf")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// createObjects creates what apply creates for a cluster with `ingress { gateway_api = true, gateway_addresses =
// "load_balancer" }` and a pool.
func createObjects(t *testing.T, c client.Client) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "kube-system", Name: name} }
	list := []client.Object{
		&corev1.ConfigMap{
			ObjectMeta: meta("load-balancer-pools"),
			Data:       map[string]string{"outside": `{"addresses": ["` + poolNetwork + `"]}`},
		},
		&corev1.Service{
			ObjectMeta: meta("kube-ingress"),
			Spec: corev1.ServiceSpec{
				Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
			},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-ingress:gateway-addresses"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
				Name: "system:kube-ingress"}},
			RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName,
				Kind:     "ClusterRole",
				Name:     "system:kube-ingress:gateway-addresses",
			},
		},
	}
	packed, err := os.ReadFile(os.Getenv("GATEWAY_DEFINITIONS"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for docs := yaml.NewYAMLOrJSONDecoder(text, 4096); ; {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := docs.Decode(d); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if d.Name != "" {
			list = append(list, d)
		}
	}
	list = append(
		list,
		&gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: className},
			Spec:       gatewayv1.GatewayClassSpec{ControllerName: "clusterctl.local/gateway"},
		},
	)
	until := time.Now().Add(30 * time.Second)
	for _, o := range list {
		for {
			err := c.Create(t.Context(), o)
			if err == nil || apierrors.IsAlreadyExists(err) {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("create %s: %v", o.GetName(), err)
			}
			time.Sleep(50 * time.Millisecond) // its kind is not served yet
		}
	}
}

// serveEchoes runs a server for every running pod, at its address.
func serveEchoes(t *testing.T, clients kubernetes.Interface) {
	ctx, cancel := context.WithCancel(context.Background())
	all := &echoServers{all: map[string]*echoServer{}}
	f := informers.NewSharedInformerFactory(clients, 0)
	handle := func(o any, isDeleted bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		p, ok := o.(*corev1.Pod)
		if !ok || !strings.HasPrefix(p.Namespace, "gateway-conformance-") {
			return
		}
		ip := p.Status.PodIP
		if isDeleted || p.Status.Phase != corev1.PodRunning {
			ip = ""
		}
		if err := all.set(p.Namespace, p.Name, ip); err != nil {
			panic(fmt.Sprintf("serve pod %s: %v", p.Name, err))
		}
	}
	if _, err := f.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { handle(o, false) }, UpdateFunc: func(_, o any) { handle(o, false) },
		DeleteFunc: func(o any) { handle(o, true) },
	}); err != nil {
		t.Fatal(err)
	}
	f.Start(ctx.Done())
	t.Cleanup(func() { cancel(); f.Shutdown() })
}
