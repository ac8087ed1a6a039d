package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// EtcdData identifies the cluster and the member that an etcd data directory belongs to.
type EtcdData struct {
	Cluster, Member uint64
}

// walFiles gives access to the files of etcd's write-ahead logs.
type walFiles interface {
	List(dir string) ([]string, error)
	Open(path string) (io.ReadCloser, error)
}

// EtcdFacts reports whether a machine has data of a member, and returns the store's cluster ID in hex, as etcdctl shows
// it. Data that cannot be read counts as data.
func EtcdFacts(h walFiles) (data bool, cluster string) {
	d, err := ReadEtcdData(h, "/var/lib/etcd")
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist), ""
	}
	return true, strconv.FormatUint(d.Cluster, 16)
}

// ReadEtcdData reads the IDs from the second record of the first of etcd's write-ahead logs. dir is the member's data
// directory. It returns fs.ErrNotExist if no member has run there.
func ReadEtcdData(h walFiles, dir string) (EtcdData, error) {
	wal := dir + "/member/wal"
	names, err := h.List(wal)
	if err != nil {
		return EtcdData{}, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wal") {
			continue
		}
		f, err := h.Open(wal + "/" + name)
		if err != nil {
			return EtcdData{}, err
		}
		data, err := decodeEtcdData(f)
		_ = f.Close()
		if err != nil {
			return EtcdData{}, fmt.Errorf("read %s/%s: %w", wal, name, err)
		}
		return data, nil
	}
	return EtcdData{}, fs.ErrNotExist
}

// The log's records are protocol buffers after a length of 8 bytes. The highest byte of the length contains the
// padding.
const (
	lengthBits     = 56
	maxRecordSize  = 4 << 10 // upper limit in bytes of the first two records
	typeField      = 1       // field numbers of a record
	dataField      = 3
	metadataRecord = 1 // type of the record with the IDs
)

func decodeEtcdData(r io.Reader) (EtcdData, error) {
	for range 2 { // a checksum, then the IDs
		var length uint64
		if err := binary.Read(r, binary.LittleEndian, &length); err != nil {
			return EtcdData{}, err
		}
		padding := uint64(0)
		if length>>63 == 1 {
			padding = length >> lengthBits & 0x7
		}
		if length &= 1<<lengthBits - 1; length == 0 || length > maxRecordSize {
			return EtcdData{}, errors.New("it does not begin as etcd's logs do")
		}
		record := make([]byte, length+padding)
		if _, err := io.ReadFull(r, record); err != nil {
			return EtcdData{}, err
		}
		numbers, texts, err := protoFields(record[:length])
		if err != nil {
			return EtcdData{}, err
		}
		if numbers[typeField] == metadataRecord {
			ids, _, err := protoFields(texts[dataField])
			return EtcdData{Member: ids[1], Cluster: ids[2]}, err
		}
	}
	return EtcdData{}, errors.New("it does not say whose it is")
}

// protoFields returns the numbers and the byte strings of a protobuf message, by field number.
func protoFields(b []byte) (map[protowire.Number]uint64, map[protowire.Number][]byte, error) {
	numbers, texts := map[protowire.Number]uint64{}, map[protowire.Number][]byte{}
	for len(b) > 0 {
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		b = b[n:]
		switch typ {
		case protowire.VarintType:
			numbers[field], n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			texts[field], n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, typ, b)
		}
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return numbers, texts, nil
}

// AppendEtcdData appends the beginning of a log to b. The etcd of hostfake writes its data with it.
func AppendEtcdData(b []byte, d EtcdData) []byte {
	ids := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), d.Member)
	ids = protowire.AppendVarint(protowire.AppendTag(ids, 2, protowire.VarintType), d.Cluster)
	record := protowire.AppendVarint(protowire.AppendTag(nil, typeField, protowire.VarintType), metadataRecord)
	record = protowire.AppendBytes(protowire.AppendTag(record, dataField, protowire.BytesType), ids)
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(record))), record...)
}
