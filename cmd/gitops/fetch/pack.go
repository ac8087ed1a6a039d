package fetch

import (
	"bufio"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of a pack's objects. A few bytes can inflate to gigabytes, so that sizes are checked before go-git reads the
// pack, which holds whole objects in memory.
const (
	maxPackObjects = 1_000_000
	maxObjectSize  = 64 << 20 // bytes of one inflated object
	maxInflated    = 4 << 30  // bytes of all inflated objects and deltas
	maxDeltaDepth  = 4096     // Git's own limit is 4095
)

// Types of entries in a pack.
const (
	typeOfsDelta = 6
	typeRefDelta = 7
)

// packReader counts the bytes that were read.
type packReader struct {
	*bufio.Reader
	offset int64
}

func (p *packReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.offset += int64(n)
	return n, err
}

func (p *packReader) ReadByte() (byte, error) {
	b, err := p.Reader.ReadByte()
	if err == nil {
		p.offset++
	}
	return b, err
}

// checkPack reads a pack and returns an error if it is damaged or exceeds a bound. Its memory does not depend on the
// sizes that the pack states.
func checkPack(ctx context.Context, r io.Reader) error {
	p := &packReader{Reader: bufio.NewReaderSize(r, 64<<10)}
	var header [12]byte
	if _, err := io.ReadFull(p, header[:]); err != nil {
		return fmt.Errorf("read its header: %w", err)
	}
	if string(header[:4]) != "PACK" || binary.BigEndian.Uint32(header[4:8]) != 2 {
		return errors.New("it is not a pack of version 2")
	}
	count := binary.BigEndian.Uint32(header[8:])
	if count > maxPackObjects {
		return fmt.Errorf("it has %d objects, and at most %d are allowed", count, maxPackObjects)
	}
	depths := map[int64]int{} // of deltas, by offset
	var inflated int64
	var inflater io.ReadCloser
	for i := range count {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at := p.offset
		kind, size, err := readEntryHeader(p)
		if err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		switch kind {
		case typeOfsDelta:
			distance, err := readOffset(p)
			if err != nil {
				return fmt.Errorf("object %d: %w", i, err)
			}
			depths[at] = depths[at-distance] + 1
			if depths[at] > maxDeltaDepth {
				return fmt.Errorf("object %d: its chain of deltas is longer than %d", i, maxDeltaDepth)
			}
		case typeRefDelta:
			if _, err := io.CopyN(io.Discard, p, 20); err != nil {
				return fmt.Errorf("object %d: %w", i, err)
			}
		case 0, 5:
			return fmt.Errorf("object %d: its type %d does not exist", i, kind)
		}
		if size > maxObjectSize {
			return fmt.Errorf("object %d: it has %d bytes, and at most %d are allowed", i, size, maxObjectSize)
		}
		if inflater == nil {
			inflater, err = zlib.NewReader(p)
		} else if resetter, ok := inflater.(zlib.Resetter); ok {
			err = resetter.Reset(p, nil)
		}
		if err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		result, err := checkEntry(inflater, kind, size)
		if err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		if inflated += size + result; inflated > maxInflated {
			return fmt.Errorf("its objects have more than %d bytes", int64(maxInflated))
		}
	}
	return nil
}

// checkEntry inflates an entry. It returns the size of the object that a delta makes.
func checkEntry(r io.Reader, kind byte, size int64) (result int64, err error) {
	content := bufio.NewReaderSize(io.LimitReader(r, size+1), 512)
	var read int64
	if kind == typeOfsDelta || kind == typeRefDelta {
		for i := range 2 { // the sizes of the base and of the result
			n, length, err := readSize(content)
			if err != nil {
				return 0, fmt.Errorf("read a delta: %w", err)
			}
			if n > maxObjectSize {
				return 0, fmt.Errorf("a delta makes an object of %d bytes, and at most %d are "+
					"allowed", n, maxObjectSize)
			}
			read += length
			if i == 1 {
				result = n
			}
		}
	}
	n, err := io.Copy(io.Discard, content)
	if err != nil {
		return 0, fmt.Errorf("inflate it: %w", err)
	}
	if read += n; read != size {
		return 0, fmt.Errorf("it inflates to another size than the %d bytes that it states", size)
	}
	return result, nil
}

// readEntryHeader reads the type and the size of an entry.
func readEntryHeader(r io.ByteReader) (kind byte, size int64, err error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	kind, size = b>>4&7, int64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if shift > 46 {
			return 0, 0, errors.New("its size is too large")
		}
		if b, err = r.ReadByte(); err != nil {
			return 0, 0, err
		}
		size |= int64(b&0x7f) << shift
	}
	return kind, size, nil
}

// readOffset reads the distance to the base of a delta.
func readOffset(r io.ByteReader) (int64, error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, err
	}
	offset := int64(b & 0x7f)
	for b&0x80 != 0 {
		if offset > 1<<40 {
			return 0, errors.New("the distance to its base is too large")
		}
		if b, err = r.ReadByte(); err != nil {
			return 0, err
		}
		offset = (offset+1)<<7 | int64(b&0x7f)
	}
	return offset, nil
}

// readSize reads a number at the beginning of a delta. It also returns the number of bytes read.
func readSize(r io.ByteReader) (n, length int64, err error) {
	for shift := 0; ; shift += 7 {
		if shift > 49 {
			return 0, 0, errors.New("a size is too large")
		}
		b, err := r.ReadByte()
		if err != nil {
			return 0, 0, err
		}
		length++
		n |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			return n, length, nil
		}
	}
}
