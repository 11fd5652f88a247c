/*
 * The part of libjpeg that Rust cannot call by itself: its errors leave by longjmp, which must not cross Rust
 * frames, and the layout of its structures is known to C only. Policy (which bytes are visible when, what a
 * suspension means) stays on the Rust side.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

/* How the structure begins that libjpeg keeps to itself (jpegint.h). */
struct jpeg_entropy_decoder {
    void (*start_pass)(j_decompress_ptr cinfo);
    boolean (*decode_mcu)(j_decompress_ptr cinfo, JBLOCKROW *blocks);
};

enum { STATUS_DONE = 0, STATUS_SUSPENDED = 1, STATUS_BROKEN = 2, STATUS_TOO_MANY_SCANS = 3 };
enum { MOST_ROWS = 16 };

/* As `Layout` in entropy/mod.rs. */
_Static_assert(NUM_HUFF_TBLS == 4 && D_MAX_BLOCKS_IN_MCU == 10 && MAX_COMPS_IN_SCAN == 4, "the lengths there");

typedef struct {
    unsigned char counts[17];
    unsigned char symbols[256];
} smr_code;

typedef struct {
    smr_code dc[NUM_HUFF_TBLS];
    smr_code ac[NUM_HUFF_TBLS];
    unsigned long long units;
    unsigned restart_interval;
    unsigned blocks;
    unsigned char components[D_MAX_BLOCKS_IN_MCU];
    unsigned char dc_tables[MAX_COMPS_IN_SCAN];
    unsigned char ac_tables[MAX_COMPS_IN_SCAN];
} smr_layout;

/* As `Start` in entropy/progressive/mod.rs. */
typedef struct {
    smr_code dc[NUM_HUFF_TBLS];
    smr_code ac[NUM_HUFF_TBLS];
    unsigned restart_interval;
    unsigned components;
    unsigned char names[3];
} smr_progression;

/* As `Frame` in pixels/mod.rs. */
typedef struct {
    unsigned width_px;
    unsigned height_px;
    unsigned components;
    unsigned char samplings[3][2];
    short factors[3][DCTSIZE2];
} smr_frame;

/* Decodes a unit to its blocks; returns 0 if it cannot. Sets `*consumed` after the last one. */
typedef int (*smr_decode)(void *scan, JBLOCKROW *blocks, size_t *consumed);

typedef struct {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    int most_scans;
    int is_over;
    /* Bytes to pass over before the next ones are shown: libjpeg may skip past what it can see. */
    size_t skip;
    smr_decode decode;
    void *scan;
} smr_jpeg;

static void leave(j_common_ptr cinfo) { longjmp(((smr_jpeg *)cinfo->client_data)->escape, 1); }

static void say_nothing(j_common_ptr cinfo) { (void)cinfo; }

static void nothing(j_decompress_ptr cinfo) { (void)cinfo; }

/* Ten bytes can say "another scan that changes nothing", and each costs a walk over the whole picture. */
static void count_scans(j_common_ptr cinfo) {
    smr_jpeg *self = cinfo->client_data;
    if (self->cinfo.input_scan_number > self->most_scans) {
        self->is_over = 1;
        leave(cinfo);
    }
}

static int failure(const smr_jpeg *self) { return self->is_over ? STATUS_TOO_MANY_SCANS : STATUS_BROKEN; }

static boolean suspend(j_decompress_ptr cinfo) {
    (void)cinfo;
    return FALSE;
}

static void skip(j_decompress_ptr cinfo, long count) {
    smr_jpeg *self = cinfo->client_data;
    if (count <= 0) return;
    size_t visible = self->source.bytes_in_buffer;
    size_t now = (size_t)count < visible ? (size_t)count : visible;
    self->source.next_input_byte += now;
    self->source.bytes_in_buffer -= now;
    self->skip = (size_t)count - now;
}

static int create(smr_jpeg *self) {
    self->cinfo.err = jpeg_std_error(&self->errors);
    self->errors.error_exit = leave;
    self->errors.output_message = say_nothing;
    self->cinfo.client_data = self;
    if (setjmp(self->escape)) return STATUS_BROKEN;
    jpeg_create_decompress(&self->cinfo);
    self->source.init_source = nothing;
    self->source.fill_input_buffer = suspend;
    self->source.skip_input_data = skip;
    self->source.resync_to_restart = jpeg_resync_to_restart;
    self->source.term_source = nothing;
    self->cinfo.src = &self->source;
    self->progress.progress_monitor = count_scans;
    self->cinfo.progress = &self->progress;
    return STATUS_DONE;
}

void smr_jpeg_free(smr_jpeg *self) {
    jpeg_destroy_decompress(&self->cinfo);
    free(self);
}

smr_jpeg *smr_jpeg_new(int most_scans) {
    smr_jpeg *self = calloc(1, sizeof *self);
    if (self != NULL) self->most_scans = most_scans;
    if (self != NULL && create(self) != STATUS_DONE) {
        smr_jpeg_free(self);
        return NULL;
    }
    return self;
}

/* Makes `length` bytes at `data` the visible input. */
void smr_jpeg_show(smr_jpeg *self, const unsigned char *data, size_t length) {
    self->source.next_input_byte = data;
    self->source.bytes_in_buffer = length;
    if (self->skip > 0) skip(&self->cinfo, (long)self->skip);
}

/* Visible bytes that were not consumed. */
size_t smr_jpeg_unread(const smr_jpeg *self) { return self->source.bytes_in_buffer; }

/* Whether a skip still waits for bytes: then nothing may run before more are shown. */
int smr_jpeg_is_skipping(const smr_jpeg *self) { return self->skip > 0; }

/* Output is to be grey for one component, RGB for three, CMYK as stored for four. */
int smr_jpeg_read_header(smr_jpeg *self) {
    if (setjmp(self->escape)) return STATUS_BROKEN;
    int found;
    do {
        found = jpeg_read_header(&self->cinfo, FALSE);
    } while (found == JPEG_HEADER_TABLES_ONLY);
    if (found == JPEG_SUSPENDED) return STATUS_SUSPENDED;
    const int components = self->cinfo.num_components;
    self->cinfo.out_color_space = components == 1 ? JCS_GRAYSCALE : components == 4 ? JCS_CMYK : JCS_RGB;
    return STATUS_DONE;
}

int smr_jpeg_is_arithmetic(const smr_jpeg *self) { return self->cinfo.arith_code; }

void smr_jpeg_size(const smr_jpeg *self, unsigned *width, unsigned *height, int *components) {
    *width = self->cinfo.image_width;
    *height = self->cinfo.image_height;
    *components = self->cinfo.num_components;
}

int smr_jpeg_start(smr_jpeg *self) {
    if (setjmp(self->escape)) return failure(self);
    return jpeg_start_decompress(&self->cinfo) ? STATUS_DONE : STATUS_SUSPENDED;
}

static void copy_code(const JHUFF_TBL *from, smr_code *to) {
    if (from == NULL) return;
    memcpy(to->counts, from->bits, sizeof to->counts);
    memcpy(to->symbols, from->huffval, sizeof to->symbols);
}

static void copy_codes(const struct jpeg_decompress_struct *cinfo, smr_code *dc, smr_code *ac) {
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        copy_code(cinfo->dc_huff_tbl_ptrs[i], &dc[i]);
        copy_code(cinfo->ac_huff_tbl_ptrs[i], &ac[i]);
    }
}

/* Whether the picture has a frame and is progressive and Huffman-coded; if so, what is known of its scans. Between the header
 * and the start, when the input is behind the header of the first scan. */
int smr_jpeg_progression(const smr_jpeg *self, smr_progression *start) {
    const struct jpeg_decompress_struct *cinfo = &self->cinfo;
    if (cinfo->arith_code || !cinfo->progressive_mode || cinfo->data_precision != 8 || cinfo->num_components > 3)
        return 0;
    memset(start, 0, sizeof *start);
    copy_codes(cinfo, start->dc, start->ac);
    start->restart_interval = cinfo->restart_interval;
    start->components = (unsigned)cinfo->comps_in_scan;
    for (int i = 0; i < 3 && i < cinfo->num_components; i++)
        start->names[i] = (unsigned char)cinfo->comp_info[i].component_id;
    return 1;
}

/* Whether the picture is one sequential Huffman-coded scan that is decoded as it is output; if so, what is in it.
 * After the start. */
int smr_jpeg_layout(const smr_jpeg *self, smr_layout *layout) {
    const struct jpeg_decompress_struct *cinfo = &self->cinfo;
    if (LIBJPEG_TURBO_VERSION_NUMBER / 1000000 != 3) return 0;
    if (cinfo->arith_code || cinfo->progressive_mode || cinfo->data_precision != 8 ||
        cinfo->comps_in_scan != cinfo->num_components || jpeg_has_multiple_scans((j_decompress_ptr)cinfo))
        return 0;
    memset(layout, 0, sizeof *layout);
    copy_codes(cinfo, layout->dc, layout->ac);
    for (int i = 0; i < cinfo->comps_in_scan; i++) {
        const jpeg_component_info *component = cinfo->cur_comp_info[i];
        /* A lossless picture has no blocks of 8x8. */
        if (!component->component_needed || component->DCT_scaled_size != DCTSIZE) return 0;
        layout->dc_tables[i] = (unsigned char)component->dc_tbl_no;
        layout->ac_tables[i] = (unsigned char)component->ac_tbl_no;
    }
    layout->blocks = (unsigned)cinfo->blocks_in_MCU;
    for (int i = 0; i < D_MAX_BLOCKS_IN_MCU; i++) layout->components[i] = (unsigned char)cinfo->MCU_membership[i];
    layout->restart_interval = cinfo->restart_interval;
    layout->units = (unsigned long long)cinfo->MCUs_per_row * cinfo->MCU_rows_in_scan;
    return 1;
}

/* Whether the picture is grey, or luminance with two colour differences; if so, what is in it. For a picture
 * that is progressive or has a layout. */
int smr_jpeg_frame(const smr_jpeg *self, smr_frame *frame) {
    const struct jpeg_decompress_struct *cinfo = &self->cinfo;
    const int is_grey = cinfo->num_components == 1 && cinfo->out_color_space == JCS_GRAYSCALE;
    const int is_colour = cinfo->num_components == 3 && cinfo->jpeg_color_space == JCS_YCbCr &&
                          cinfo->out_color_space == JCS_RGB;
    if (!is_grey && !is_colour) return 0;
    if (!cinfo->do_fancy_upsampling || cinfo->dct_method != JDCT_ISLOW) return 0;
    memset(frame, 0, sizeof *frame);
    frame->width_px = cinfo->image_width;
    frame->height_px = cinfo->image_height;
    frame->components = (unsigned)cinfo->num_components;
    for (int i = 0; i < cinfo->num_components; i++) {
        const jpeg_component_info *component = &cinfo->comp_info[i];
        const int number = component->quant_tbl_no;
        const JQUANT_TBL *table = number >= 0 && number < NUM_QUANT_TBLS ? cinfo->quant_tbl_ptrs[number] : NULL;
        if (table == NULL) return 0;
        frame->samplings[i][0] = (unsigned char)component->h_samp_factor;
        frame->samplings[i][1] = (unsigned char)component->v_samp_factor;
        for (int j = 0; j < DCTSIZE2; j++) frame->factors[i][j] = (short)table->quantval[j];
    }
    return 1;
}

/* To libjpeg, a unit that could not be decoded is one that waits for input. */
static boolean decode_unit(j_decompress_ptr cinfo, JBLOCKROW *blocks) {
    smr_jpeg *self = cinfo->client_data;
    size_t consumed = 0;
    if (blocks == NULL || !self->decode(self->scan, blocks, &consumed)) return FALSE;
    self->source.next_input_byte += consumed;
    self->source.bytes_in_buffer -= consumed;
    return TRUE;
}

/* Has `decode` decode the units of the scan instead of libjpeg. After the start. */
void smr_jpeg_replace_entropy(smr_jpeg *self, smr_decode decode, void *scan) {
    self->decode = decode;
    self->scan = scan;
    self->cinfo.entropy->decode_mcu = decode_unit;
}

/* Bytes of a decoded row, after the start. */
size_t smr_jpeg_row_bytes(const smr_jpeg *self) {
    return (size_t)self->cinfo.output_width * (size_t)self->cinfo.output_components;
}

/* Reads up to `count` rows to `out`, rows without gaps; `*done` grows by the rows read. */
int smr_jpeg_rows(smr_jpeg *self, unsigned char *out, size_t count, size_t *done) {
    JSAMPROW rows[MOST_ROWS];
    const size_t row_bytes = smr_jpeg_row_bytes(self);
    if (setjmp(self->escape)) return failure(self);
    while (*done < count) {
        const size_t left = count - *done;
        const unsigned ask = left < MOST_ROWS ? (unsigned)left : MOST_ROWS;
        for (unsigned i = 0; i < ask; i++) rows[i] = out + (*done + i) * row_bytes;
        const unsigned got = jpeg_read_scanlines(&self->cinfo, rows, ask);
        if (got == 0) return STATUS_SUSPENDED;
        *done += got;
    }
    return STATUS_DONE;
}

int smr_jpeg_finish(smr_jpeg *self) {
    if (setjmp(self->escape)) return failure(self);
    return jpeg_finish_decompress(&self->cinfo) ? STATUS_DONE : STATUS_SUSPENDED;
}
