package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// anonymousKey is a key in an anonymous map, as nft prints it.
var anonymousKey = regexp.MustCompile(`[{,] [0-9]+ : `)

// swapAnonymousKeys changes the byte order of the keys of anonymous maps. The library does not state that they are in
// the host's byte order, so that nft prints them in the other one.
func swapAnonymousKeys(text string) string {
	return anonymousKey.ReplaceAllStringFunc(text, func(found string) string {
		words := strings.Fields(found)
		n, err := strconv.ParseUint(words[1], 10, 32)
		if err != nil {
			return found
		}
		return fmt.Sprintf("%s %d : ", words[0], bits.ReverseBytes32(uint32(n)))
	})
}

// TestRulesAreThoseOfTheLibrary writes the same table by this package and by github.com/google/nftables. nft must print
// the same rules and elements of both.
// Proves S28.
func TestRulesAreThoseOfTheLibrary(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		printed := func(write func(*nft.Table) error) string {
			if err := write(newFullTable(t, f)); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			out, err := exec.Command("nft", "list", "table", f.String(), "test").CombinedOutput()
			if err != nil {
				t.Fatalf("nft list: %s", out)
			}
			if err := Remove(f, "test"); err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		ours, theirs := printed(new(Kernel).Apply), printed(writeByLibrary)
		if theirs = swapAnonymousKeys(theirs); ours != theirs {
			t.Errorf("%s: this package wrote\n%s\nthe library wrote\n%s", f, ours, theirs)
		}
	}
}

// BenchmarkTable writes a table of 2,000 services with a chain each.
func BenchmarkTable(b *testing.B) {
	for name, write := range map[string]func(*nft.Table) error{
		"kernel":  func(t *nft.Table) error { return new(Kernel).Apply(t) },
		"library": writeByLibrary,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				t := newServiceTable(b, 2000)
				if err := Remove(nft.IPv4, t.Name); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := write(t); err != nil {
					b.Fatal(err)
				}
			}
			if err := Remove(nft.IPv4, "test"); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkCompare compares a table of 2,000 services with the kernel's. The library has no list of all rules of a
// table, so that it lists each chain.
func BenchmarkCompare(b *testing.B) {
	t := newServiceTable(b, 2000)
	var k Kernel
	if err := k.Apply(t); err != nil {
		b.Fatal(err)
	}
	b.Run("kernel", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			k.generation-- // simulates a change by another program
			if isIntact, err := k.IsIntact(t, true); err != nil || !isIntact {
				b.Fatal(isIntact, err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := listByLibrary(t); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := Remove(nft.IPv4, "test"); err != nil {
		b.Fatal(err)
	}
}

// newServiceTable returns a table as the proxy has it: a map of all services, and a chain of three endpoints for each.
func newServiceTable(t testing.TB, services int) *nft.Table {
	t.Helper()
	all := &nft.Fragment{
		Sets: map[string]nft.Set{"services": {Key: destinationKey, Values: nft.Verdicts}},
		Chains: map[string]nft.Chain{"nat": {Hook: &nft.Hook{Type: "nat", Name: "prerouting", Priority: -100},
			Rules: []nft.Rule{{nft.Lookup{Map: "services", Key: destinationKey}}}}},
		Elements: map[string][]nft.Element{},
	}
	for i := range services {
		address := func(first byte) netip.Addr { return netip.AddrFrom4([4]byte{first, 0, byte(i >> 8), byte(i)}) }
		var to []netip.AddrPort
		for pod := range byte(3) {
			to = append(to, netip.AddrPortFrom(address(10+pod), 8080))
		}
		name := fmt.Sprintf("service-%d", i)
		all.Chains[name] = nft.Chain{Rules: []nft.Rule{
			{nft.FromNet{Net: netip.MustParsePrefix("10.0.0.0/8"), Not: true}, nft.Mark{Bits: 0x4000}},
			{nft.IsProtocol{Protocol: nft.TCP}, nft.RandomTo{To: to}},
		}}
		all.Elements["services"] = append(all.Elements["services"], nft.Element{
			Key:   nft.Key{Destination: nft.SingleAddress(address(96)), Protocol: nft.TCP, Port: 80},
			Value: nft.VerdictValue("goto", name),
		})
	}
	table, err := nft.NewTable(nft.IPv4, "test", all)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// libraryWriter writes a table with github.com/google/nftables.
type libraryWriter struct {
	*batch // encodes keys
	conn   *nftables.Conn
	table  *nftables.Table
	sets   map[string]*nftables.Set
}

// dialLibrary returns a connection that has the buffers of this package's.
func dialLibrary() (*nftables.Conn, error) {
	return nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(receiveBytes), c.SetWriteBuffer(sendBytes))
	}))
}

func writeByLibrary(t *nft.Table) (err error) {
	w := &libraryWriter{batch: newBatch(t), sets: map[string]*nftables.Set{}}
	if w.conn, err = dialLibrary(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.conn.CloseLasting()) }()
	w.table = w.conn.AddTable(&nftables.Table{Family: nftables.TableFamily(t.Family), Name: t.Name})
	c, _ := t.DiffFrom(nft.KernelTable{})
	for _, name := range c.AddSets {
		s, _ := t.Set(name)
		if err := w.addLibrarySet(name, s); err != nil {
			return err
		}
	}
	chains := map[string]*nftables.Chain{}
	for _, name := range c.AddChains {
		chain := &nftables.Chain{Name: name, Table: w.table}
		if hook := t.Chain(name).Hook; hook != nil {
			chain.Type = nftables.ChainType(hook.Type)
			chain.Hooknum = nftables.ChainHookRef(nftables.ChainHook(hookNumbers[hook.Name]))
			chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(hook.Priority))
		}
		chains[name] = w.conn.AddChain(chain)
	}
	for _, name := range c.SetRules {
		for _, r := range t.Chain(name).Rules {
			rule := &nftables.Rule{Table: w.table, Chain: chains[name], UserData: userdata(r.Mark(t.Family))}
			for _, s := range r {
				exprs, err := w.expressions(s)
				if err != nil {
					return err
				}
				rule.Exprs = append(rule.Exprs, exprs...)
			}
			w.conn.AddRule(rule)
		}
	}
	for name, list := range c.AddElements {
		s, _ := t.Set(name)
		elements := w.libraryElements(s, list)
		for len(elements) > 0 { // an attribute holds at most 64 KiB
			n := min(len(elements), 500)
			if err := w.conn.SetAddElements(w.sets[name], elements[:n]); err != nil {
				return err
			}
			elements = elements[n:]
		}
	}
	return w.conn.Flush()
}

// listByLibrary reads everything that a comparison needs.
func listByLibrary(t *nft.Table) (err error) {
	conn, err := dialLibrary()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.CloseLasting()) }()
	table := &nftables.Table{Family: nftables.TableFamily(t.Family), Name: t.Name}
	chains, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return err
	}
	for _, c := range chains {
		if _, err := conn.GetRules(table, c); err != nil {
			return err
		}
	}
	for _, name := range t.FilledSets() {
		if _, err := conn.GetSetElements(&nftables.Set{Table: table, Name: name}); err != nil {
			return err
		}
	}
	return nil
}

func (w *libraryWriter) keyDatatype(key []nft.Field) nftables.SetDatatype {
	var types []nftables.SetDatatype
	for _, f := range key {
		switch f {
		case nft.Source, nft.Destination:
			types = append(types, map[nft.Family]nftables.SetDatatype{nft.IPv4: nftables.TypeIPAddr,
				nft.IPv6: nftables.TypeIP6Addr}[w.family])
		case nft.Protocol:
			types = append(types, nftables.TypeInetProto)
		case nft.Port:
			types = append(types, nftables.TypeInetService)
		case nft.Index:
			types = append(types, nftables.TypeMark)
		}
	}
	return nftables.MustConcatSetType(types...)
}

func (w *libraryWriter) addLibrarySet(name string, s nft.Set) error {
	set := &nftables.Set{Table: w.table, Name: name, KeyType: w.keyDatatype(s.Key), Interval: s.Ranges,
		IsMap: s.Values != nft.NoValues}
	switch s.Values {
	case nft.Verdicts:
		set.DataType = nftables.TypeVerdict
	case nft.Numbers:
		set.DataType = nftables.TypeClassID
	case nft.Endpoints:
		set.DataType = w.keyDatatype([]nft.Field{nft.Destination, nft.Port})
	}
	if s.Timeout > 0 {
		set.HasTimeout, set.Dynamic, set.Size = true, true, maxDynamic
		set.Timeout = time.Duration(s.Timeout) * time.Second
	}
	w.sets[name] = set
	return w.conn.AddSet(set, nil)
}

func (w *libraryWriter) libraryElements(s nft.Set, list []nft.Element) (out []nftables.SetElement) {
	for _, e := range list {
		element := nftables.SetElement{Key: w.encodeKey(s.Key, e.Key)}
		switch s.Values {
		case nft.Verdicts:
			element.VerdictData = libraryVerdict(e.Value.Verdict)
		case nft.Numbers:
			element.Val = nativeUint32(storedBase + e.Value.Number)
		case nft.Endpoints:
			element.Val = encodeEndpoint(e.Value.To)
		}
		out = append(out, element)
		if after := keyEnd(e.Key).Next(); s.Ranges && after.IsValid() {
			out = append(out, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}

func libraryVerdict(v nft.Verdict) *expr.Verdict {
	return &expr.Verdict{Kind: expr.VerdictKind(verdicts[v.Action]), Chain: v.Chain}
}

// addMap adds an anonymous map from the numbers from first on.
func (w *libraryWriter) addMap(data nftables.SetDatatype, first uint32, n int,
	value func(int) nftables.SetElement) (*nftables.Set, error) {
	set := &nftables.Set{Table: w.table, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeInteger,
		DataType: data, KeyByteOrder: binaryutil.NativeEndian}
	var elements []nftables.SetElement
	for i := range n {
		element := value(i)
		element.Key = nativeUint32(first + uint32(i))
		elements = append(elements, element)
	}
	return set, w.conn.AddSet(set, elements)
}

func (w *libraryWriter) addChainMap(first uint32, chains []string) (*nftables.Set, error) {
	return w.addMap(nftables.TypeVerdict, first, len(chains), func(i int) nftables.SetElement {
		return nftables.SetElement{VerdictData: libraryVerdict(nft.Verdict{Action: "goto", Chain: chains[i]})}
	})
}

// expressions returns the library's form of a statement.
//
//style:long a literal list of all statements
func (w *libraryWriter) expressions(s nft.Stmt) ([]expr.Any, error) {
	compare := func(op expr.CmpOp, data []byte) expr.Any {
		return &expr.Cmp{Op: op, Register: firstRegister, Data: data}
	}
	equal := func(data []byte) expr.Any { return compare(expr.CmpOpEq, data) }
	notEqual := func(isNegated bool) expr.CmpOp {
		if isNegated {
			return expr.CmpOpNeq
		}
		return expr.CmpOpEq
	}
	meta := func(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: firstRegister} }
	setMeta := func(key expr.MetaKey) expr.Any {
		return &expr.Meta{Key: key, Register: firstRegister, SourceRegister: true}
	}
	transport := func(offset, length uint32) expr.Any {
		return &expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseTransportHeader, Offset: offset,
			Len: length}
	}
	bitwise := func(mask, xor []byte) expr.Any {
		return &expr.Bitwise{SourceRegister: firstRegister, DestRegister: firstRegister, Len: uint32(len(mask)),
			Mask: mask, Xor: xor}
	}
	setBits := func(mask, xor uint32) expr.Any { return bitwise(nativeUint32(mask), nativeUint32(xor)) }
	connection := func(key expr.CtKey) expr.Any { return &expr.Ct{Key: key, Register: firstRegister} }
	lookup := func(set string, id, into uint32) expr.Any {
		return &expr.Lookup{SourceRegister: firstRegister, DestRegister: into, IsDestRegSet: true, SetName: set,
			SetID: id}
	}
	random := func(n int, into uint32) expr.Any {
		return &expr.Numgen{Register: into, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM}
	}
	translate := &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(w.family), RegAddrMin: firstRegister,
		RegProtoMin: firstRegister + w.addressBytes()/4}
	network := func(f nft.Field, p netip.Prefix, not bool) []expr.Any {
		list, _ := w.key([]nft.Field{f})
		if size := int(w.addressBytes()); !p.IsSingleIP() {
			list = append(list, bitwise(net.CIDRMask(p.Bits(), 8*size), make([]byte, size)))
		}
		return append(list, compare(notEqual(not), p.Masked().Addr().AsSlice()))
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	within := func(minimum, maximum []byte) expr.Any {
		return &expr.Range{Op: expr.CmpOpEq, Register: firstRegister, FromData: minimum, ToData: maximum}
	}
	state := func(of uint32) []expr.Any {
		return []expr.Any{connection(expr.CtKeySTATE), setBits(of, 0), compare(expr.CmpOpNeq, nativeUint32(0))}
	}
	switch s := s.(type) {
	case nft.FromNet:
		return network(nft.Source, s.Net, s.Not), nil
	case nft.ToNet:
		return network(nft.Destination, s.Net, s.Not), nil
	case nft.FromLocal:
		return []expr.Any{&expr.Fib{Register: firstRegister, ResultADDRTYPE: true, FlagSADDR: true},
			equal(nativeUint32(unix.RTN_LOCAL))}, nil
	case nft.ToLocal:
		return []expr.Any{&expr.Fib{Register: firstRegister, ResultADDRTYPE: true, FlagDADDR: true},
			equal(nativeUint32(unix.RTN_LOCAL))}, nil
	case nft.WrongInterface:
		return []expr.Any{&expr.Fib{Register: firstRegister, ResultOIF: true, FlagSADDR: true, FlagIIF: true},
			equal(nativeUint32(0))}, nil
	case nft.InSet:
		list, _ := w.key(s.Key)
		return append(list, &expr.Lookup{SourceRegister: firstRegister, SetName: s.Set, Invert: s.Not}), nil
	case nft.Lookup:
		list, _ := w.key(s.Key)
		return append(list, lookup(s.Map, 0, unix.NFT_REG_VERDICT)), nil
	case nft.IsProtocol:
		return []expr.Any{meta(expr.MetaKeyL4PROTO), equal([]byte{s.Protocol})}, nil
	case nft.ToPorts:
		if s.First == s.Last {
			return []expr.Any{transport(dport, 2), equal(port(s.First))}, nil
		}
		return []expr.Any{transport(dport, 2), within(port(s.First), port(s.Last))}, nil
	case nft.OnLink:
		return []expr.Any{&expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseNetworkHeader,
			Offset: w.hopLimitOffset(), Len: 1}, equal([]byte{255})}, nil
	case nft.FromInterface:
		return []expr.Any{meta(expr.MetaKeyIIFNAME), compare(notEqual(s.Not), []byte(s.Prefix))}, nil
	case nft.Random:
		set, err := w.addChainMap(0, s.Chains)
		return []expr.Any{random(len(s.Chains), firstRegister), lookup(set.Name, set.ID, unix.NFT_REG_VERDICT)}, err
	case nft.RandomTo:
		set, err := w.addMap(w.keyDatatype([]nft.Field{nft.Destination, nft.Port}), 0, len(s.To),
			func(i int) nftables.SetElement { return nftables.SetElement{Val: encodeEndpoint(s.To[i])} })
		return []expr.Any{random(len(s.To), firstRegister), lookup(set.Name, set.ID, firstRegister), translate}, err
	case nft.StoreNumber:
		list, _ := w.key(s.Key)
		return append(list, lookup(s.Map, 0, firstRegister), setMeta(expr.MetaKeyPRIORITY)), nil
	case nft.GotoStored:
		set, err := w.addChainMap(storedBase+1, s.Chains)
		return []expr.Any{meta(expr.MetaKeyPRIORITY), lookup(set.Name, set.ID, unix.NFT_REG_VERDICT)}, err
	case nft.ClearStored:
		return []expr.Any{&expr.Immediate{Register: firstRegister, Data: nativeUint32(0)},
			setMeta(expr.MetaKeyPRIORITY)}, nil
	case nft.RandomFrom:
		list, index := w.key(s.Key)
		if s.Count == 1 {
			list = append(list, &expr.Immediate{Register: index, Data: nativeUint32(0)})
		} else {
			list = append(list, random(s.Count, index))
		}
		return append(list, lookup(s.Map, 0, firstRegister), translate), nil
	case nft.DNAT:
		return []expr.Any{&expr.Immediate{Register: firstRegister, Data: s.To.Addr().AsSlice()},
			&expr.Immediate{Register: translate.RegProtoMin, Data: port(s.To.Port())}, translate}, nil
	case nft.Untranslated:
		return []expr.Any{connection(expr.CtKeySTATUS), setBits(statusTranslated, 0), equal(nativeUint32(0))}, nil
	case nft.Reply:
		return []expr.Any{connection(expr.CtKeyDIRECTION), equal([]byte{directionReply})}, nil
	case nft.Decide:
		return []expr.Any{libraryVerdict(s.Verdict)}, nil
	case nft.AddSource:
		list, _ := w.key([]nft.Field{nft.Source})
		return append(list, &expr.Dynset{SrcRegKey: firstRegister, SetName: s.Set, Operation: unix.NFT_DYNSET_OP_UPDATE,
			Timeout: time.Duration(s.Timeout) * time.Second}), nil
	case nft.Mark:
		return []expr.Any{meta(expr.MetaKeyMARK), setBits(^s.Bits, s.Bits), setMeta(expr.MetaKeyMARK)}, nil
	case nft.Marked:
		return []expr.Any{meta(expr.MetaKeyMARK), setBits(s.Bits, 0), compare(expr.CmpOpNeq, nativeUint32(0)),
			meta(expr.MetaKeyMARK), setBits(^uint32(0), s.Bits), setMeta(expr.MetaKeyMARK)}, nil
	case nft.Masquerade:
		return []expr.Any{&expr.Masq{FullyRandom: true}}, nil
	case nft.Reject:
		code := map[nft.Family]uint8{nft.IPv4: 3, nft.IPv6: 4}[w.family]
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}, nil
	case nft.NewConnection:
		return state(stateNew), nil
	case nft.EstablishedConnection:
		return state(stateEstablished | stateRelated), nil
	}
	return nil, fmt.Errorf("%T has no form in the library", s)
}

// key returns the expressions that load a key, and the register after it.
func (w *libraryWriter) key(fields []nft.Field) (list []expr.Any, register uint32) {
	register = firstRegister
	offsets := map[nft.Field]uint32{nft.Source: saddr4, nft.Destination: daddr4}
	if w.family == nft.IPv6 {
		offsets = map[nft.Field]uint32{nft.Source: saddr6, nft.Destination: daddr6}
	}
	for _, f := range fields {
		switch f {
		case nft.Source, nft.Destination:
			list = append(list, &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader,
				Offset: offsets[f], Len: w.addressBytes()})
			register += w.addressBytes() / 4
		case nft.Protocol:
			list = append(list, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register})
			register++
		case nft.Port:
			list = append(list, &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader,
				Offset: dport, Len: 2})
			register++
		}
	}
	return list, register
}
