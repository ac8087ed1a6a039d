package dashboard

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// rows is the number of pods in the large table. 50,000 take minutes.
var rows = flag.Int("rows", 3000, "pods in the table that is scrolled and filtered")

// newPod returns a pod that no scheduler places.
func newPod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template("pod", "registry.example/pod").Spec}
	pod.Spec.SchedulerName = "none"
	return pod
}

// createPods creates pods that no node runs, since only their rows matter.
func createPods(t *testing.T, namespace string, count int) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	see(t, "the default service account", func() error {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for i := range count {
		g.Go(func() error {
			pod := newPod(fmt.Sprintf("pod-%05d", i))
			pod.Labels = map[string]string{"shard": fmt.Sprint(i % 10)}
			_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Proves S34.
func TestALargeTableScrollsAndFilters(t *testing.T) {
	createPods(t, "many", *rows)
	p := openTab(t, board, "/p/pods?ns=many")
	p.wait("all pods", fmt.Sprintf(`document.querySelector('.count').textContent.replace(',', '') === '%d'`, *rows))
	p.waitText("pod-00000")
	t.Logf("the first paint is %.0f ms after the request", evaluate[float64](p,
		`performance.getEntriesByName('first-contentful-paint')[0].startTime`))
	if n := evaluate[int](p, `document.querySelectorAll('.tbody .tr').length`); n > 500 {
		t.Errorf("%d rows are in the document", n)
	}
	started := time.Now()
	evaluate[bool](p, `(() => { const e = document.querySelector('.table'); e.scrollTop = e.scrollHeight; return true; })()`)
	p.waitText(fmt.Sprintf("pod-%05d", *rows-1))
	t.Logf("the last row is visible %s after scrolling to it", time.Since(started).Round(time.Millisecond))
	middle := *rows / 2
	evaluate[bool](p, fmt.Sprintf(`(() => { document.querySelector('.table').scrollTop = %d * 32; return true; })()`, middle))
	p.wait("the row in the middle", fmt.Sprintf(`(() => {
		const box = document.querySelector('.table').getBoundingClientRect();
		const row = document.elementFromPoint(box.x + 30, box.y + 32 + 16)?.closest('.tr');
		return row?.getAttribute('aria-rowindex') === '%d' && row.innerText.includes('pod-%05d');
	})()`, middle+2, middle))
	p.picture("large-light")
	started = time.Now()
	p.replace(".filter", fmt.Sprintf("pod-%05d", *rows-7))
	p.wait("one row", `document.querySelectorAll('.tbody .tr').length === 1`)
	t.Logf("the row is found %s after typing its name", time.Since(started).Round(time.Millisecond))
	p.replace(".filter", "label:shard=3")
	p.wait("a tenth of the rows", fmt.Sprintf(`document.querySelector('.count').textContent.replaceAll(',', '') ===
		'%d of %d'`, (*rows+6)/10, *rows))
	p.click(".thead button", "Name ↑")
	p.wait("the last name to be first", fmt.Sprintf(`document.querySelector('[aria-rowindex="2"]')?.innerText.includes(
		'pod-%05d')`, (*rows-4)/10*10+3))
}

// TestRowsKeepTheirElementsWhileOthersChange updates a pod that sorts before another one, and clicks on the other one.
func TestRowsKeepTheirElementsWhileOthersChange(t *testing.T) {
	createPods(t, "few", 3)
	p := openTab(t, board, "/p/pods?ns=few")
	p.waitText("pod-00002")
	evaluate[bool](p, `(() => { window.kept = [...document.querySelectorAll('.tr a')].find((e) =>
		e.textContent === 'pod-00001').closest('.tr'); return true; })()`)
	pods := client.CoreV1().Pods("few")
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := pods.Delete(t.Context(), "pod-00000", now); err != nil {
		t.Fatal(err)
	}
	p.wait("the deleted pod to be gone", `!document.body.innerText.includes('pod-00000')`)
	if !evaluate[bool](p, `window.kept.isConnected && window.kept.innerText.includes('pod-00001')`) {
		t.Error("the row of another pod has another element")
	}
	evaluate[bool](p, `(() => { const link = window.kept.querySelector('a'); const box = link.getBoundingClientRect();
		window.at = [box.x + 5, box.y + 5];
		link.dispatchEvent(new PointerEvent('pointerdown', {bubbles: true})); return true; })()`)
	if _, err := pods.Create(t.Context(), newPod("a-first"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.wait("the number of pods", `document.querySelector('.count').textContent === '3'`)
	if !evaluate[bool](p, `document.elementFromPoint(...window.at).textContent.includes('pod-00001')`) {
		t.Error("rows have moved under a pressed mouse button")
	}
	evaluate[bool](p, `document.dispatchEvent(new PointerEvent('pointerup', {bubbles: true}))`)
	p.waitText("a-first")
}

func TestTheNamespaceNarrowsTablesAndStaysOnOtherPages(t *testing.T) {
	p := openTab(t, board, "/p/workloads")
	p.waitText("stuck")
	p.replace("#namespace", "shop")
	p.keys("\r")
	p.wait("the namespace in the address", `new URLSearchParams(location.search).get('ns') === 'shop'`)
	p.wait("no column of namespaces", `document.querySelector('.thead')?.innerText.includes('Ready') &&
		!document.querySelector('.thead').innerText.includes('Namespace')`)
	p.click("nav a", "Pods")
	p.wait("the pods of the namespace", `location.pathname === '/p/pods' && location.search === '?ns=shop'`)
	p.waitText("db-0")
}
