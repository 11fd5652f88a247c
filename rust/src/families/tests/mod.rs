mod inkling;
mod qwen_vl;
