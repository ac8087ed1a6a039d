package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// read returns the kernel's state of a table, and whether the table exists.
func (s *socket) read(t *nft.Table) (nft.KernelTable, bool, error) {
	for tries := 0; ; tries++ {
		f, exists, err := s.readOnce(t)
		// If another program changed rules during the listing, start again.
		if !errors.Is(err, errRulesChanging) || tries == 5 {
			return f, exists, err
		}
		again, err := openSocket()
		if err != nil {
			return nft.KernelTable{}, false, err
		}
		s.close()
		*s = *again
	}
}

func (s *socket) readOnce(t *nft.Table) (f nft.KernelTable, exists bool, err error) {
	f = nft.KernelTable{
		Chains:   map[string]nft.KernelChain{},
		Sets:     map[string]uint64{},
		Elements: map[string]map[nft.Key]nft.Value{},
	}
	err = s.list(listRequest(unix.NFT_MSG_GETCHAIN, t, unix.NFTA_CHAIN_TABLE),
		func(body []byte) { readChain(body, t.Name, f.Chains) })
	if err != nil {
		return f, false, ignoreAbsent(err)
	}
	if len(f.Chains) == 0 {
		return f, false, nil
	}
	if err := s.list(listRequest(unix.NFT_MSG_GETRULE, t, unix.NFTA_RULE_TABLE),
		func(body []byte) { readRule(body, t.Name, f.Chains) }); err != nil {
		return f, false, ignoreAbsent(err)
	}
	if err := s.list(listRequest(unix.NFT_MSG_GETSET, t, unix.NFTA_SET_TABLE),
		func(body []byte) { readSet(body, t.Name, f.Sets) }); err != nil {
		return f, false, ignoreAbsent(err)
	}
	for _, name := range t.FilledSets() {
		set, _ := t.Set(name)
		if f.Sets[name] != set.Mark() {
			continue // the set does not exist or has another type
		}
		all := map[nft.Key]nft.Value{}
		f.Elements[name] = all
		m := &netlinkMessage{}
		m.begin(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, t.Family)
		m.addText(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
		m.addText(unix.NFTA_SET_ELEM_LIST_SET, name)
		m.end()
		r := elementReader{family: t.Family, set: set, into: all}
		if err := s.list(m, r.elements); err != nil {
			return f, false, ignoreAbsent(err)
		}
		r.finish()
	}
	return f, true, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func listRequest(kind uint16, t *nft.Table, table uint16) *netlinkMessage {
	m := &netlinkMessage{}
	m.begin(kind, unix.NLM_F_DUMP, t.Family)
	m.addText(table, t.Name)
	m.end()
	return m
}

// trimZero returns a string of the kernel without its terminating zero.
func trimZero(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	return string(b)
}

func parseUint32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func readChain(body []byte, table string, into map[string]nft.KernelChain) {
	var in, name, kind string
	var hook *nft.Hook
	eachAttribute(body, func(k uint16, v []byte) {
		switch k {
		case unix.NFTA_CHAIN_TABLE:
			in = trimZero(v)
		case unix.NFTA_CHAIN_NAME:
			name = trimZero(v)
		case unix.NFTA_CHAIN_TYPE:
			kind = trimZero(v)
		case unix.NFTA_CHAIN_HOOK:
			hook = &nft.Hook{}
			eachAttribute(v, func(k uint16, v []byte) {
				switch k {
				case unix.NFTA_HOOK_HOOKNUM:
					for word, n := range hookNumbers {
						if n == parseUint32(v) {
							hook.Name = word
						}
					}
				case unix.NFTA_HOOK_PRIORITY:
					hook.Priority = int32(parseUint32(v))
				}
			})
		}
	})
	if in != table {
		return
	}
	if hook != nil {
		hook.Type = kind
	}
	into[name] = nft.KernelChain{Hook: hook}
}

func readRule(body []byte, table string, into map[string]nft.KernelChain) {
	var in, chain string
	var mark uint64
	eachAttribute(body, func(k uint16, v []byte) {
		switch k {
		case unix.NFTA_RULE_TABLE:
			in = trimZero(v)
		case unix.NFTA_RULE_CHAIN:
			chain = trimZero(v)
		case unix.NFTA_RULE_USERDATA:
			mark = readMark(v)
		}
	})
	if c, ok := into[chain]; ok && in == table {
		c.Rules = append(c.Rules, mark)
		into[chain] = c
	}
}

func readSet(body []byte, table string, into map[string]uint64) {
	var in, name string
	var mark uint64
	var flags uint32
	eachAttribute(body, func(k uint16, v []byte) {
		switch k {
		case unix.NFTA_SET_TABLE:
			in = trimZero(v)
		case unix.NFTA_SET_NAME:
			name = trimZero(v)
		case unix.NFTA_SET_FLAGS:
			flags = parseUint32(v)
		case unix.NFTA_SET_USERDATA:
			mark = readMark(v)
		}
	})
	if in == table && flags&unix.NFT_SET_ANONYMOUS == 0 {
		into[name] = mark
	}
}

// elementReader reads the elements of one set.
type elementReader struct {
	family nft.Family
	set    nft.Set
	into   map[nft.Key]nft.Value
	bounds []rangeBound // bounds of ranges, for a set of ranges
}

type rangeBound struct {
	at  netip.Addr
	end bool
}

func (r *elementReader) elements(body []byte) {
	eachAttribute(body, func(k uint16, v []byte) {
		if k != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		eachAttribute(v, func(_ uint16, v []byte) { r.element(v) })
	})
}

func (r *elementReader) element(body []byte) {
	var key []byte
	var value nft.Value
	var flags uint32
	eachAttribute(body, func(k uint16, v []byte) {
		switch k {
		case unix.NFTA_SET_ELEM_KEY:
			eachAttribute(v, func(_ uint16, v []byte) { key = v })
		case unix.NFTA_SET_ELEM_DATA:
			eachAttribute(v, func(k uint16, v []byte) {
				value = r.value(k, v)
			})
		case unix.NFTA_SET_ELEM_FLAGS:
			flags = parseUint32(v)
		}
	})
	k, ok := r.key(key)
	if !ok {
		return
	}
	if r.set.Ranges {
		at := k.Source.First
		if !at.IsValid() {
			at = k.Destination.First
		}
		r.bounds = append(r.bounds, rangeBound{at, flags&unix.NFT_SET_ELEM_INTERVAL_END != 0})
		return
	}
	r.into[k] = value
}

// value decodes the value of an element.
func (r *elementReader) value(kind uint16, b []byte) (v nft.Value) {
	switch {
	case kind == unix.NFTA_DATA_VERDICT:
		v.Verdict = readVerdict(b)
	case r.set.Values == nft.Numbers && len(b) == 4:
		v.Number = binary.NativeEndian.Uint32(b) - storedBase
	case r.set.Values == nft.Endpoints:
		k, ok := (&elementReader{family: r.family, set: nft.Set{Key: []nft.Field{nft.Destination, nft.Port}}}).key(b)
		if ok {
			v.To = netip.AddrPortFrom(k.Destination.First, k.Port)
		}
	}
	return v
}

func readVerdict(body []byte) (v nft.Verdict) {
	eachAttribute(body, func(k uint16, b []byte) {
		switch k {
		case unix.NFTA_VERDICT_CODE:
			for word, code := range verdicts {
				if uint32(code) == parseUint32(b) {
					v.Action = word
				}
			}
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = trimZero(b)
		}
	})
	return v
}

func (r *elementReader) key(b []byte) (k nft.Key, ok bool) {
	length := 4
	if r.family == nft.IPv6 {
		length = 16
	}
	for _, f := range r.set.Key {
		switch f {
		case nft.Source, nft.Destination:
			if len(b) < length {
				return k, false
			}
			a, _ := netip.AddrFromSlice(b[:length])
			if f == nft.Source {
				k.Source = nft.SingleAddress(a)
			} else {
				k.Destination = nft.SingleAddress(a)
			}
			b = b[length:]
		case nft.Protocol:
			if len(b) < 1 {
				return k, false
			}
			k.Protocol = b[0]
			b = b[min(4, len(b)):]
		case nft.Port:
			if len(b) < 2 {
				return k, false
			}
			k.Port = binary.BigEndian.Uint16(b)
			b = b[min(4, len(b)):]
		case nft.Index:
			if len(b) < 4 {
				return k, false
			}
			k.Index = binary.NativeEndian.Uint32(b)
			b = b[4:]
		}
	}
	return k, true
}

// finish pairs the bounds to ranges.
func (r *elementReader) finish() {
	slices.SortFunc(r.bounds, func(a, b rangeBound) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		if a.end == b.end {
			return 0
		}
		if a.end { // a range ends before the next one begins
			return -1
		}
		return 1
	})
	for i, b := range r.bounds {
		if b.end {
			continue
		}
		a := nft.Addresses{First: b.at, Last: highestAddress(r.family)}
		if i+1 < len(r.bounds) {
			a.Last = r.bounds[i+1].at.Prev()
		}
		if a.Last == a.First {
			a.Last = netip.Addr{}
		}
		k := nft.Key{Destination: a}
		if slices.Contains(r.set.Key, nft.Source) {
			k = nft.Key{Source: a}
		}
		r.into[k] = nft.Value{}
	}
}

func highestAddress(f nft.Family) netip.Addr {
	if f == nft.IPv6 {
		return nft.NetworkAddresses(netip.MustParsePrefix("::/0")).Last
	}
	return nft.NetworkAddresses(netip.MustParsePrefix("0.0.0.0/0")).Last
}
