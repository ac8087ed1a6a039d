package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
	"clusterctl/provision/support"
)

// fixedConn is a connection to a machine that sends the same bytes to every request.
type fixedConn struct {
	io.Reader
}

func (fixedConn) Write(b []byte) (int, error) { return len(b), nil }
func (fixedConn) Close() error                { return nil }

// hostileClient returns a client of a machine that gives one answer.
func hostileClient(t *testing.T, a any) *Client {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := writeFrame(&b, frameAnswer, text); err != nil {
		t.Fatal(err)
	}
	return NewClient(fixedConn{&b})
}

const forgedText = "x\x1b[2J\nPlan: 0 to create, 0 to change, 0 to remove."

// A machine's texts are printed on a terminal. They can neither control the terminal nor forge lines that look like
// clusterctl's.
func TestAMachineCannotForgeLines(t *testing.T) {
	plain := func(what, text string) {
		t.Helper()
		if strings.ContainsAny(text, "\x1b\r") || strings.Contains(text, "\nPlan:") {
			t.Errorf("%s is %q", what, text)
		}
	}
	f, err := hostileClient(
		t,
		answer{
			Facts: &host.Facts{
				Hostname:  forgedText,
				OS:        forgedText,
				Addresses: []string{forgedText},
				Sysctl:    map[string]string{forgedText: forgedText},
				Release: &host.Release{
					Version: forgedText,
				},
				Snapshot: &store.Outcome{Error: forgedText},
				Survey:   host.Survey{Listening: []host.Listener{{Process: forgedText}}},
			},
		},
	).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"host name": f.Hostname, "os": f.OS, "address": f.Addresses[0],
		"release":  f.Release.Version,
		"snapshot": f.Snapshot.Error, "process": f.Listening[0].Process} {
		plain(what, text)
	}
	for k, v := range f.Sysctl {
		plain("setting", k+v)
	}
	c := step.Change{Action: forgedText, Kind: forgedText, Name: forgedText, Note: forgedText,
		Diff: []string{forgedText}}
	list, err := hostileClient(t, answer{Changes: []step.Change{c}}).Check(t.Context(),
		[]step.Step{&step.File{Path: "/a"}})
	if err != nil {
		t.Fatal(err)
	}
	plain("change", strings.Join(append(list[0].Diff, list[0].Action, list[0].Kind, list[0].Name, list[0].Note), " "))
	_, err = hostileClient(t, answer{Error: forgedText}).Facts(t.Context())
	if err == nil {
		t.Fatal("a failure is none")
	}
	plain("error", err.Error())
}

// Files of a support bundle are only written to the machine's own folder.
func TestSupportFilesStayInTheirDirectory(t *testing.T) {
	files := []support.File{
		{Name: "../m2/kernel.txt"},
		{Name: "/etc/passwd"},
		{Name: "a\x00b"},
		{Name: "a/../../b"},
		{Name: "journal/kubelet.log"},
		{Name: ""},
		{Name: `..\b`},
	}
	got, err := hostileClient(t, answer{Files: files}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range got {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"journal/kubelet.log"}) {
		t.Errorf("files are %q", names)
	}
}

// A snapshot's name becomes a local file name and is sent to other machines, so it must not contain path elements.
func TestSnapshotNamesOutsideTheDirectoryAreRejected(t *testing.T) {
	for _, name := range []string{"../../.ssh/x", "/etc/cron.d/x", "", ".", "..", "a\nb", ".hidden"} {
		if a, err := hostileClient(t,
			answer{Store: &store.Answer{Snapshots: []store.Snapshot{{Name: name}}}}).Store(t.Context(), "",
			store.Request{Op: store.List}); err == nil {
			t.Errorf("%q is taken: %+v", name, a)
		}
	}
	if _, err := hostileClient(t, answer{Store: &store.Answer{Snapshots: []store.Snapshot{{
		Name: "etcd-20261123T080000Z-m1"}}}}).Store(t.Context(), "", store.Request{Op: store.Save}); err != nil {
		t.Error(err)
	}
}

// An answer without a snapshot is an error, because the caller depends on the snapshot.
func TestAnAnswerWithoutASnapshotIsAnError(t *testing.T) {
	for _, op := range []string{store.Save, store.Check, store.FromData} {
		if a, err := hostileClient(t, answer{Store: &store.Answer{}}).Store(t.Context(), "",
			store.Request{Op: op}); err == nil {
			t.Errorf("%s: %+v", op, a)
		}
	}
}

// Decoding an answer takes about as much memory as it has bytes.
func TestAnswersWithTooManyValuesAreRejected(t *testing.T) {
	const n = 8 << 20
	text := append([]byte(`{"changes":[{}`), bytes.Repeat([]byte(",{}"), n)...)
	text = append(text, "]}"...)
	var b bytes.Buffer
	if err := writeFrame(&b, frameAnswer, text); err != nil {
		t.Fatal(err)
	}
	c := NewClient(fixedConn{&b})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.Check(t.Context(), []step.Step{&step.File{Path: "/a"}})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "values") {
		t.Errorf("error %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 200<<20 {
		t.Errorf("an answer of %d MB took %d MB of memory", len(text)>>20, took>>20)
	}
}

// A frame header with a large size does not allocate memory before the data has arrived.
func TestAnnouncedFrameSizesAllocateNoMemory(t *testing.T) {
	c := NewClient(fixedConn{bytes.NewReader([]byte{frameAnswer, 3, 0xff, 0xff, 0xff})})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.Facts(t.Context())
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Error("no error")
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("it took %d MB", took>>20)
	}
}

// A file that is read from a machine is not larger than the announced size.
func TestAMachineCannotFillTheDisk(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	go func() {
		_, _, _ = readFrame(far)
		_ = sendFrames(endlessHost{}, "/x", far)
		_ = far.Close()
	}()
	var got counter
	err := NewClient(near).Read(t.Context(), "/x", 1<<20, &got)
	if err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("error %v", err)
	}
	if got > 1<<20 {
		t.Errorf("%d bytes were written", got)
	}
}

type counter int64

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

// endlessHost returns files of infinite size.
type endlessHost struct{ host.Host }

func (endlessHost) Open(string) (io.ReadCloser, error) { return io.NopCloser(zeroReader{}), nil }

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// repeatingConn is a connection that repeats the same frame.
type repeatingConn struct {
	frame     []byte
	offset    int
	maxFrames int // number of frames, so that the test ends
}

func (a *repeatingConn) Read(b []byte) (int, error) {
	if a.maxFrames == 0 {
		return 0, io.EOF
	}
	n := copy(b, a.frame[a.offset:])
	if a.offset = (a.offset + n) % len(a.frame); a.offset == 0 {
		a.maxFrames--
	}
	return n, nil
}

// Progress messages are written to the journal of a run. A machine can neither fill the disk with them, nor keep the
// run from ending.
func TestEndlessProgressIsCutOff(t *testing.T) {
	frame := func(kind byte, payload string) *repeatingConn {
		var b bytes.Buffer
		if err := writeFrame(&b, kind, []byte(payload)); err != nil {
			t.Fatal(err)
		}
		return &repeatingConn{frame: b.Bytes(), maxFrames: 100_000}
	}
	reports := 0
	err := NewClient(
		fixedConn{frame(frameProgress, `{"index":0,"change":{"action":"+"}}`)},
	).Apply(t.Context(), []step.Step{&step.File{Path: "/a"}, &step.File{Path: "/b"}}, func(Progress) { reports++ })
	if err == nil || reports > 2 {
		t.Errorf("two steps were reported %d times: %v", reports, err)
	}
	alive := frame(frameAlive, "")
	if err := NewClient(fixedConn{alive}).Apply(t.Context(), nil, nil); !errors.Is(err, ErrUnresponsive) {
		t.Errorf("an agent that is at work for days: %v", err)
	}
}

// FuzzClient sends arbitrary bytes of an agent to a client. The client ends with an answer or an error, whose text has
// no control characters.
func FuzzClient(f *testing.F) {
	begin := func(kind byte, payload string) []byte {
		var b bytes.Buffer
		if err := writeFrame(&b, kind, []byte(payload)); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(begin(frameAnswer, `{"facts":{"hostname":"m1","snapshot":{"tried":"2026-11-23T08:00:00Z"}}}`))
	f.Add(
		begin(
			frameAnswer,
			`{"changes":[{"action":"+","diff":["\u001b[2J"]}],"files":[{"name":"../x"}],"remains":{"name":"n","member":{}}}`,
		),
	)
	f.Add(begin(frameAnswer, `{"store":{"snapshots":[{"name":"../x"}]}}`))
	f.Add(append(begin(frameProgress, `{"index":-1,"change":{"name":"\n"}}`),
		begin(frameAnswer, `{"error":"a\nb"}`)...))
	f.Add(append(begin(frameData, "(\xb5/\xfd"), begin(frameData, "")...))
	f.Add([]byte{frameAnswer, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx := context.Background()
		client := func() *Client { return NewClient(fixedConn{bytes.NewReader(data)}) }
		plain := func(text string) {
			if strings.ContainsAny(text, "\x1b\r") {
				t.Errorf("%q", text)
			}
		}
		if facts, err := client().Facts(ctx); err == nil {
			plain(facts.Hostname + facts.OS)
		} else {
			plain(err.Error())
		}
		if list, err := client().Check(ctx, []step.Step{&step.File{}}); err == nil {
			plain(list[0].Name + strings.Join(list[0].Diff, ""))
		}
		_ = client().Apply(ctx, nil, func(p Progress) { plain(p.Change.Name) })
		_, _ = client().Remains(ctx)
		_, _ = client().Collect(ctx)
		_, _ = client().Store(ctx, "", store.Request{Op: store.List})
		var got counter
		if _ = client().Read(ctx, "/x", 1<<20, &got); got > 1<<20 {
			t.Errorf("%d bytes of a file", got)
		}
	})
}
